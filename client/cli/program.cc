// `forebay`: the options of all commands, the list of commands, and the run of one command line.
#include "client/cli/program.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/printable_stream.h"

namespace forebay::cli {
namespace {

std::string Footer() {
  // Made from the table that the exit codes themselves come from, so help cannot disagree with it.
  std::string text = "Exit codes:\n";
  for (const ExitCodeMeaning& exit : kExitCodeMeanings) {
    text += fmt::format("  {}  {}\n", exit.code, exit.meaning);
  }
  return text + "\nWith --json every command prints one JSON object per line; its member "
                "\"schema\" names the format\n(docs/cli.md).";
}

// A better message than the parser's where the first word is no command; else an empty text.
std::string WrongFirstWord(const Command& program, const std::vector<std::string>& arguments) {
  // A first word that is an option says nothing about the command; CLI11's own message is better
  // then.
  if (arguments.empty() || arguments.front().starts_with('-')) return {};
  if (program.Find(arguments.front())) return {};
  return UnknownCommand(program, arguments.front());
}

void Define(Command& program, CommandContext& context) {
  program.DescribeProgram("forebay",
                          "Stages data sets near the GPUs and streams minibatches from there.");
  program.RequireCommand();
  program
      .AddOption("-a,--address,--socket", context.address,
                 "The daemon: unix:/path (default: $FOREBAY_ADDRESS, else this job's daemon in its "
                 "default place)")
      .ValueName("PATH");
  program.AddFlag("--json", context.json, "Print JSON, one object per line");
  program
      .AddOption("--timeout-ms", context.connect_timeout_ms,
                 "How long to wait for the daemon (default: 5000)")
      // An hour at most, so that a value in another unit is noticed.
      .Within(1, 3'600'000);
  program.AddVersion(std::string("forebay ") + FOREBAY_VERSION);
  // Every command is declared in every run, also where only one is used, so that help, the manual
  // and the completions see the same declarations as the parser.
  AddDatasets(program, context);
  AddStage(program, context);
  AddStatus(program, context);
  AddReport(program, context);
  AddVerify(program, context);
  AddEvict(program, context);
  AddDoctor(program, context);
  AddOrder(program, context);
  AddAudit(program, context);
  AddBench(program, context);
  AddTune(program, context);
  AddCompress(program, context);
  AddPack(program, context);
  AddUnpack(program, context);
  AddInspect(program, context);
  AddDrain(program, context);
  AddLaunch(program, context);
  AddSecret(program, context);
  // The order here is the order of `forebay --help`.
  AddHelp(program, context);
}

}  // namespace

void DefineCommands(CLI::App& app, CommandContext& context) {
  Command program(app, context);
  Define(program, context);
}

int RunForebay(std::vector<std::string> arguments, const ProgramStreams& streams) {
  // Before any command exists, so that no code path can print past the filter.
  PrintableStream out(streams.out), err(streams.err);
  CommandContext context{
      .out = out, .err = err, .terminal = streams.terminal, .address = {}};
  return RunCommandLine({.define = Define, .diagnose = WrongFirstWord, .footer = Footer()},
                        std::move(arguments), context);
}

}  // namespace forebay::cli
