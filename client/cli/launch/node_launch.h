// NodeLaunch: a daemon for as long as a command runs. Starts forebayd, waits until clients may
// connect, runs the command with the daemon's address, and ends the daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/launch/child_process.h"
#include "client/cli/launch/signal_watch.h"
#include "proto/contract/result.h"

namespace forebay::cli {

struct CommandContext;

struct LaunchArguments {
  std::string config;                 // empty: $FOREBAY_CONFIG
  std::vector<std::string> settings;  // KEY=VALUE
  std::string node_rank, node_count;  // empty: the launcher says it
  std::string log;                    // empty: standard error
  std::uint32_t ready_timeout_s = 300;
  std::vector<std::string> command;
};

class NodeLaunch {
 public:
  // Both are borrowed. context.address, if given, is where the daemon listens.
  NodeLaunch(CommandContext& context, const LaunchArguments& arguments)
      : context_(context), arguments_(arguments) {}

  // Blocks until command and daemon have ended. Sets context.exit_code to the command's exit code,
  // to 128 + N if signal N ended it, to 126 or 127 if it cannot be started. Errors: the daemon
  // cannot be started, or ended before the command.
  Status Run();

 private:
  Result<std::string> Config() const;
  Status StartDaemon();
  Status AwaitReady(int fd);
  Status RunCommand();
  Status EndCommandWithoutDaemon(ChildProcess& command);
  void EndDaemon(bool has_succeeded);
  void AwaitDaemonsEnd(std::chrono::steady_clock::time_point deadline);
  void SetCode(int code);
  void Say(const std::string& text);
  std::string WhereItLogs() const;

  CommandContext& context_;
  const LaunchArguments& arguments_;
  const SignalWatch signals_;
  std::optional<ChildProcess> daemon_;
  std::string address_;
};

}  // namespace forebay::cli
