// The commands of `forebay`.
#pragma once

namespace CLI {
class App;
}

namespace forebay::cli {

struct CommandContext;

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

}  // namespace forebay::cli
