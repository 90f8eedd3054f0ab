// The commands of `forebay`.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace forebay::cli {

struct CommandContext;

// The whole command line of `forebay`: the options of all commands, and each command. The parser
// and what describes it (the manual, the completions) use this one definition.
void DefineCommands(CLI::App& app, CommandContext& context);

// Each adds one subcommand whose callback runs it and sets context.exit_code.
void AddDatasets(CLI::App& app, CommandContext& context);
void AddStage(CLI::App& app, CommandContext& context);
void AddStatus(CLI::App& app, CommandContext& context);
void AddReport(CLI::App& app, CommandContext& context);
void AddVerify(CLI::App& app, CommandContext& context);
void AddEvict(CLI::App& app, CommandContext& context);
void AddDrain(CLI::App& app, CommandContext& context);
void AddOrder(CLI::App& app, CommandContext& context);
void AddAudit(CLI::App& app, CommandContext& context);
void AddBench(CLI::App& app, CommandContext& context);
void AddCompress(CLI::App& app, CommandContext& context);
void AddPack(CLI::App& app, CommandContext& context);
void AddUnpack(CLI::App& app, CommandContext& context);
void AddInspect(CLI::App& app, CommandContext& context);
void AddHelp(CLI::App& app, CommandContext& context);

// The command `word` of `app`, or null.
const CLI::App* FindCommand(const CLI::App& app, const std::string& word);
// What is said of `word`, which is none of the commands of `app`: the nearest one is named.
std::string UnknownCommand(const CLI::App& app, const std::string& word);

}  // namespace forebay::cli
