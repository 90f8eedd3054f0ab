#include "client/cli/program.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/printable_stream.h"

namespace forebay::cli {
namespace {

std::string Footer() {
  std::string text = "Exit codes:\n";
  for (const ExitCodeMeaning& exit : kExitCodeMeanings) {
    text += fmt::format("  {}  {}\n", exit.code, exit.meaning);
  }
  return text + "\nWith --json every command prints one JSON object per line; its member "
                "\"schema\" names the format\n(docs/cli.md).";
}

// A message where the first word is no command; options before it have a value behind "=" or none.
std::string WrongFirstWord(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) return {};
  if (FindCommand(app, arguments.front()) != nullptr) return {};
  return UnknownCommand(app, arguments.front());
}

}  // namespace

void DefineCommands(CLI::App& app, CommandContext& context) {
  app.name("forebay");
  app.description("Stages data sets near the GPUs and streams minibatches from there.");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("-a,--address,--socket", context.address,
                 "The daemon: unix:/path (default: $FOREBAY_ADDRESS, else this job's daemon in its "
                 "default place)")
      ->type_name("PATH");
  app.add_flag("--json", context.json, "Print JSON, one object per line");
  app.add_option("--timeout-ms", context.connect_timeout_ms,
                 "How long to wait for the daemon (default: 5000)")
      ->check(CLI::Range(1, 3'600'000));
  app.set_version_flag("-V,--version", std::string("forebay ") + FOREBAY_VERSION);
  AddDatasets(app, context);
  AddStage(app, context);
  AddStatus(app, context);
  AddReport(app, context);
  AddVerify(app, context);
  AddEvict(app, context);
  AddOrder(app, context);
  AddAudit(app, context);
  AddBench(app, context);
  AddCompress(app, context);
  AddPack(app, context);
  AddUnpack(app, context);
  AddInspect(app, context);
  AddDrain(app, context);
  AddHelp(app, context);
}

int RunForebay(std::vector<std::string> arguments, const ProgramStreams& streams) {
  PrintableStream out(streams.out), err(streams.err);
  CommandContext context{
      .out = out, .err = err, .terminal = streams.terminal, .address = {}};
  CLI::App app;
  app.footer(Footer());  // first, so that commands without one of their own have it, too
  DefineCommands(app, context);
  const std::string wrong = WrongFirstWord(app, arguments);
  // CLI11 takes the arguments last first.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& parsed) {
    if (!wrong.empty()) {
      context.err << "forebay: " << wrong << '\n';
      return static_cast<int>(ExitCode::kUsage);
    }
    const int code = app.exit(parsed, context.out, context.err);
    return code == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  return static_cast<int>(context.exit_code);
}

}  // namespace forebay::cli
