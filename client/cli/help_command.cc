// `forebay help`: what a command's --help prints, and what is said of a word that is no command.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/commands.h"

namespace forebay::cli {
namespace {

// Letters to insert, take away or replace to make one word of the other.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

void PrintHelp(const CLI::App& app, const std::vector<std::string>& words,
               CommandContext& context) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const std::string& word : words) {
    const CLI::App* const next = FindCommand(*command, word);
    if (next == nullptr) {
      context.err << "forebay: " << UnknownCommand(*command, word) << '\n';
      context.exit_code = ExitCode::kUsage;
      return;
    }
    command = next;
    name += " " + word;
  }
  // Not command->help(): that of the command that was parsed, which is this one.
  context.out << app.get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal);
}

}  // namespace

const CLI::App* FindCommand(const CLI::App& app, const std::string& word) {
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == word) return command;
  }
  return nullptr;
}

std::string UnknownCommand(const CLI::App& app, const std::string& word) {
  std::string nearest;
  std::size_t nearest_distance = word.size() / 2 + 1;  // farther ones are other words
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    const std::size_t distance = EditDistance(command->get_name(), word);
    if (distance >= nearest_distance) continue;
    nearest = command->get_name();
    nearest_distance = distance;
  }
  return fmt::format("there is no command '{}'; {}`forebay help` lists all", word,
                     nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest));
}

void AddHelp(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("help", "Show the options of a command, as its --help does.");
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("COMMAND", *words, "The command (default: the list of all)");
  command->callback([&app, &context, words] { PrintHelp(app, *words, context); });
}

}  // namespace forebay::cli
