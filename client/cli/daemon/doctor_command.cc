// `forebay doctor`: whether this node has what a job needs. The checks are forebayd's, which knows
// the configuration and uses files as it does when it serves. So this command only finds forebayd
// and becomes it: signals, output and exit code need nobody between.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/daemon_address.h"
#include "client/connection/embedded_daemon.h"

namespace forebay::cli {
namespace {

struct DoctorArguments {
  std::string config;
  std::vector<std::string> settings;
};

Status RunDoctor(CommandContext& context, const DoctorArguments& arguments) {
  const std::string config = DaemonConfig(arguments.config);
  std::vector<std::string> words = {internal::DaemonProgram(), "--doctor"};
  if (!config.empty()) words.insert(words.end(), {"--config", config});
  for (const std::string& setting : arguments.settings) {
    words.insert(words.end(), {"--set", setting});
  }
  if (context.json) words.emplace_back("--json");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  context.out.flush();
  execvp(pointers.front(), pointers.data());
  const int failed = errno;
  return Error(failed == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInternal,
               "starting '" + words.front() + "': " + std::strerror(failed) +
                   "; put forebayd beside forebay, or in $PATH",
               failed);
}

}  // namespace

void AddDoctor(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "doctor", "Try on this node what a job needs, and say what to do about each failure.");
  auto arguments = std::make_shared<DoctorArguments>();
  command
      .AddOption("--config", arguments->config,
                 "The configuration file of the job's daemons (default: $FOREBAY_CONFIG, else "
                 "every key has its default)")
      .ExistingFile();
  command.AddOption("--set", arguments->settings, "Overrides a key of the file; repeatable")
      .ValueName("KEY=VALUE");
  command.SetFooter("Exit code 0: no failure, perhaps warnings; 1: a failure; 2: the command line "
                    "or the configuration is wrong. No daemon needs to run. Takes about a minute "
                    "at most, and leaves nothing behind.");
  command.OnRun([&context, arguments] { return RunDoctor(context, *arguments); });
}

}  // namespace forebay::cli
