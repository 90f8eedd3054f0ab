// Defines one flag for each key of the table in train_config.cc. It is a file of its own because
// CLI11 is slow to compile. Flags are only collected while CLI11 parses, and applied afterwards,
// because the file that --config names has to come before them, wherever it stands.
#include "trainer/core/config/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace forebay::train {
namespace {

// The help shows the key behind its text, because configuration files name it so.
void AddKeyFlag(CLI::App& app, const ConfigKey& key, RawArguments& raw) {
  std::string help = key.help + " [" + key.name + "]";
  if (!key.choices.empty()) help += fmt::format(" {{{}}}", fmt::join(key.choices, "|"));
  // Values are checked later, when they are applied in their order.
  const auto remember = [&raw, name = key.name](const std::string& text) {
    raw.by_flag.emplace_back(name, text);
  };
  if (std::holds_alternative<bool*>(key.slot)) {
    app.add_flag_function(
        key.Flag(), [remember](std::int64_t count) { remember(count > 0 ? "true" : "false"); },
        help);
  } else {
    app.add_option_function<std::string>(key.Flag(), remember, help)
        ->group(key.name.substr(0, key.name.find('.')));
  }
}

// The order is the precedence: what is applied later wins.
Status Apply(TrainConfig& config, const RawArguments& raw) {
  if (!raw.config_path.empty()) FOREBAY_TRY(ApplyTomlFile(config, raw.config_path));
  for (const std::string& assignment : raw.assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--set {}: must be key=value", assignment));
    }
    FOREBAY_TRY(SetConfigValue(config, assignment.substr(0, equals),
                               assignment.substr(equals + 1)));
  }
  // Last, because a key's own flag wins.
  for (const auto& [name, text] : raw.by_flag) {
    FOREBAY_TRY(SetConfigValue(config, name, text));
  }
  return {};
}

}  // namespace

void DefineCommandLine(CLI::App& app, RawArguments& raw) {
  app.name("forebay-train");
  app.description(
      "Trains a network on minibatches streamed by forebayd, on one process or under mpirun, on "
      "replicas x pipeline stages. `forebay-train report FOLDER` draws what a run left in its "
      "--metrics-dir, `forebay-train evaluate CHECKPOINT` evaluates a checkpoint, and "
      "`forebay-train export CHECKPOINT -o FILE` writes its weights for other programs.\n"
      "Exit codes: 0 trained, 1 failed, 2 wrong words, 3 slow BLAS, 85 stopped by a signal or the "
      "wall-time limit after a checkpoint (requeue with --resume auto).");
  app.add_option("--config", raw.config_path, "configuration file (TOML)")->type_name("FILE");
  app.add_option("--set", raw.assignments, "section.key=value, may be repeated")
      ->expected(1)
      // One assignment for each --set: the word after it belongs to the next flag.
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--print-config", raw.print_config, "print the resulting TOML and exit");
  app.add_flag("--list-models", raw.lists_models,
               "print networks, their settings and losses and exit");
  TrainConfig table;
  // Only names and help texts are taken from this table; its values go nowhere.
  for (const ConfigKey& key : ConfigKeys(table)) AddKeyFlag(app, key, raw);
}

Result<CommandLine> ParseCommandLine(int argc, const char* const* argv, TrainConfig base) {
  CommandLine line;
  // The program's own defaults come first, and everything else over them.
  line.config = std::move(base);
  RawArguments raw;
  try {
    CLI::App app;
    DefineCommandLine(app, raw);
    try {
      app.parse(argc, argv);
    // Inside, because the help text needs the app, which the outer handler no longer has.
    } catch (const CLI::CallForHelp&) {
      line.text = app.help();
      return line;
    }
  } catch (const CLI::Error& error) {
    return Error(ErrorCode::kInvalidArgument, error.what());
  }
  FOREBAY_TRY(Apply(line.config, raw));
  line.lists_models = raw.lists_models;
  // After all sources were applied, so that it shows what a run would use.
  if (raw.print_config) line.text = ToToml(line.config);
  return line;
}

}  // namespace forebay::train
