// The commands of `forebay`.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace forebay::cli {

class Command;
struct CommandContext;

// The whole command line of `forebay`: the options of all commands, and each command. The parser
// and what describes it (the manual, the completions) use this one definition.
void DefineCommands(CLI::App& app, CommandContext& context);

// Each adds one subcommand, which runs the command and sets context.exit_code.
void AddDatasets(Command& program, CommandContext& context);
void AddStage(Command& program, CommandContext& context);
void AddStatus(Command& program, CommandContext& context);
void AddReport(Command& program, CommandContext& context);
void AddVerify(Command& program, CommandContext& context);
void AddEvict(Command& program, CommandContext& context);
void AddDrain(Command& program, CommandContext& context);
void AddDoctor(Command& program, CommandContext& context);
void AddLaunch(Command& program, CommandContext& context);
void AddSecret(Command& program, CommandContext& context);
void AddOrder(Command& program, CommandContext& context);
void AddAudit(Command& program, CommandContext& context);
void AddBench(Command& program, CommandContext& context);
void AddTune(Command& program, CommandContext& context);
void AddCompress(Command& program, CommandContext& context);
void AddPack(Command& program, CommandContext& context);
void AddUnpack(Command& program, CommandContext& context);
void AddInspect(Command& program, CommandContext& context);
void AddHelp(Command& program, CommandContext& context);

// The message about `word`, which is no subcommand of `command`: it names the nearest one.
std::string UnknownCommand(const Command& command, const std::string& word);

}  // namespace forebay::cli
