// `forebay launch`: runs a command with a daemon beside it, once per node of a job. This file has
// the command line; NodeLaunch does the work.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/launch/node_launch.h"
#include "client/cli/launch/secret_input.h"

namespace forebay::cli {
namespace {

// So that a slip of the pen does not keep a node busy for the rest of the job.
constexpr std::uint32_t kRestartsMax = 1'000;
constexpr std::uint32_t kDescriptorMax = 1U << 20;  // the default of Linux (fs.nr_open)

// Without it, a terminal that nothing is typed at would look like a start that hangs.
std::string AskForSecret(int fd) {
  return fmt::format("forebay: waits for a line with the secret of the job, because --secret-fd {} "
                     "is a terminal\n", fd);
}

// The words behind "--" as they were given: the parser would split one like [a,b].
Result<std::vector<std::string>> BehindMark(const std::vector<std::string>& arguments) {
  const auto mark = std::ranges::find(arguments, "--");
  if (mark == arguments.end()) {
    return Error(ErrorCode::kInvalidArgument, "write '--' before the command that launch runs");
  }
  return std::vector<std::string>(mark + 1, arguments.end());
}

}  // namespace

void AddLaunch(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "launch", "Run a command with a daemon of its own; start it once on each node of a job.");
  auto arguments = std::make_shared<LaunchArguments>();
  command
      .AddOption("--config", arguments->config,
                 "The daemon's configuration file (default: $FOREBAY_CONFIG)")
      .ValueName("FILE");
  command
      .AddOption("--set", arguments->settings,
                 "Overrides a key of that file, as forebayd's --set does; repeatable")
      .ValueName("KEY=VALUE")
      .Verbatim();
  auto join = std::make_shared<std::string>();
  command
      .AddOption("--join", *join,
                 "Has the node join the job that runs already, in a free place; the address is "
                 "that of any of its nodes (stands for --set nodes.rendezvous=join:HOST:PORT)")
      .ValueName("HOST:PORT");
  command
      .AddOption("--node-rank", arguments->node_rank,
                 "This node's rank, from 0; needed only where no launcher says it. With --join: "
                 "the place that it takes")
      .ValueName("N");
  command
      .AddOption("--node-count", arguments->node_count, "The number of nodes of the job; likewise")
      .ValueName("N");
  auto secret_fd = std::make_shared<std::optional<std::uint64_t>>();
  command
      .AddOption("--secret-fd", *secret_fd,
                 "Reads the secret of the job from this descriptor: one line (0: of standard "
                 "input; the command gets what follows). Overrides $FOREBAY_JOB_SECRET and the key "
                 "peer.secret")
      .Within(0U, kDescriptorMax)
      .ValueName("N");
  command
      .AddOption("--log", arguments->log,
                 "Appends the daemon's log to this file, one for each node (default: standard "
                 "error)")
      .ValueName("FILE");
  command
      .AddOption("--ready-timeout-s", arguments->ready_timeout_s,
                 "How long the daemon may take until it is ready (default: 300)")
      .Within(1U, 86'400U);
  command
      .AddOption("--restarts", arguments->restarts,
                 "How often in all a daemon that died is started again, and a command that a "
                 "signal ended, or that exits with 85, is run again (default: 0)")
      .Within(0U, kRestartsMax)
      .ValueName("N");
  command
      .AddOption("COMMAND", arguments->command,
                 "The command and its arguments, behind '--'; its exit code is that of launch")
      .Required();
  command.OnRun([&context, arguments, join, secret_fd]() -> Status {
    FOREBAY_ASSIGN(arguments->command, BehindMark(context.arguments));
    // Before NodeLaunch takes the signals: until the line has come, a signal ends this process.
    if (*secret_fd) {
      const int fd = static_cast<int>(**secret_fd);
      if (isatty(fd) == 1) context.err << AskForSecret(fd) << std::flush;
      FOREBAY_ASSIGN(arguments->secret, ReadSecretLine(fd));
    }
    // Last, because of two settings of a key the last one counts.
    if (!join->empty()) arguments->settings.push_back("nodes.rendezvous=join:" + *join);
    return NodeLaunch(context, *arguments).Run();
  });
}

}  // namespace forebay::cli
