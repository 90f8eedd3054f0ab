// NodeLaunch: a daemon for as long as a command runs. Starts forebayd, waits until clients may
// connect, runs the command with the daemon's address, and ends the daemon. Either may be started
// again meanwhile, as often as the user allows in all.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/launch/child_process.h"
#include "client/cli/launch/restart_budget.h"
#include "client/cli/launch/signal_watch.h"
#include "proto/contract/result.h"

namespace forebay::cli {

struct CommandContext;

struct LaunchArguments {
  std::string config;                 // empty: $FOREBAY_CONFIG
  std::vector<std::string> settings;  // KEY=VALUE
  std::string node_rank, node_count;  // empty: the launcher says it
  std::string log;                    // empty: standard error
  std::string secret;                 // of the job; empty: the daemon looks for one by itself
  std::uint32_t ready_timeout_s = 300;
  std::uint32_t restarts = 0;  // of the daemon and the command together
  std::vector<std::string> command;
};

class NodeLaunch {
 public:
  // Both are borrowed. context.address, if given, is where the daemon listens.
  NodeLaunch(CommandContext& context, const LaunchArguments& arguments)
      : context_(context), arguments_(arguments), restarts_(arguments.restarts) {}

  // Blocks until command and daemon have ended, and removes what a killed daemon has left. Sets
  // context.exit_code to the command's exit code, to 128 + N if signal N ended it, to 126 or 127 if
  // it cannot be started; if it was run several times, the last run counts. Errors: the daemon
  // cannot be started, or ended before the command, is not started again, and no other node serves
  // the command's readers.
  Status Run();

 private:
  using Time = std::chrono::steady_clock::time_point;

  Status RunBoth();
  void RemoveFilesOfDead();
  Result<std::string> Config() const;
  SignalWatch::Event Next(Time deadline, int fd = -1);
  bool WantsDaemon() const;

  Status StartDaemon();
  Status AwaitReady(int fd);
  void GiveUpDaemon();
  bool RestartDaemon();
  void EndDaemon(bool stays_for_others);
  void AwaitDaemonsEnd(Time deadline);

  Status StartCommand();
  Status AttendCommand();
  std::optional<RestartBudget::Restart> NextRun();
  bool AwaitNextRun();
  Status EndCommandWithoutDaemon();
  std::string CommandWithoutDaemon(const std::string& what) const;

  void SetCode(int code);
  void Say(const std::string& text);
  std::string WhereItLogs() const;
  std::string WhyNoRestart() const;

  CommandContext& context_;
  const LaunchArguments& arguments_;
  const SignalWatch signals_;
  RestartBudget restarts_;
  std::optional<ChildProcess> daemon_;
  std::vector<pid_t> daemons_;  // all that were started
  std::optional<ChildProcess> command_;
  std::uint32_t runs_ = 0;  // of the command, begun
  bool is_in_foreground_ = false;
  // Whether this run of the command got a signal from here, which may be why it ends.
  bool was_signalled_ = false;
  // The next run of the command, if it has ended and is to be run again.
  std::optional<RestartBudget::Restart> next_run_;
  // A daemon that was started again was not ready in time, and was ended. There is no further one.
  bool is_daemon_given_up_ = false;
  // Whether other nodes serve the readers of the command when the daemon is gone.
  bool have_readers_others_ = false;
  // The first signal that asks for the end. From then on nothing is started again.
  std::optional<int> end_signal_;
};

}  // namespace forebay::cli
