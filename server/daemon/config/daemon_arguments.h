// The command line and the exit codes of forebayd. The parser, the manual page and the shell
// completions use this one definition.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace forebay::daemon {

struct DaemonArguments {
  std::string config_path;
  std::vector<std::string> settings;  // KEY=VALUE
  std::string socket;
  std::string exit_when_idle_s;
  std::string job;
  std::string node_rank;
  std::string node_count;
  int ready_fd = -1;
  bool check = false;
  bool doctor = false;
  bool json = false;
  bool config_reference = false;
};

struct DaemonExitCode {
  int code;
  std::string_view meaning;
};
inline constexpr DaemonExitCode kExitOk = {0, "ended as asked"};
inline constexpr DaemonExitCode kExitFailure = {
    1, "could not start, or failed; --doctor: found a failure"};
inline constexpr DaemonExitCode kExitUsage = {2, "wrong usage or configuration"};
inline constexpr std::array kDaemonExitCodes = {kExitOk, kExitFailure, kExitUsage};

// Names and describes `app`, and adds the options. `arguments` is filled when `app` parses.
void DefineArguments(CLI::App& app, DaemonArguments& arguments);

}  // namespace forebay::daemon
