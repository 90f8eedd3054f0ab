// `forebay help`: prints the same text as a command's --help. The message about a word that is no
// command is made here as well, because `help` and the parser (program.cc) both need it; it
// suggests the nearest command by edit distance.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"

namespace forebay::cli {
namespace {

// The number of letters to insert, delete or replace to turn one word into the other.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  // One row of the usual table (Levenshtein's distance): each row needs only the one before.
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

// Follows the words from command to subcommand, as in `forebay help compress bench`. A wrong word
// is reported exactly as RunCommandLine reports a wrong first word of the command line.
void PrintHelp(const Command& program, const std::vector<std::string>& words,
               CommandContext& context) {
  Command command = program;
  std::string name = "forebay";
  for (const std::string& word : words) {
    const std::optional<Command> next = command.Find(word);
    if (!next) {
      context.err << "forebay: " << UnknownCommand(command, word) << '\n';
      context.exit_code = ExitCode::kUsage;
      return;
    }
    command = *next;
    name += " " + word;
  }
  context.out << command.Help(name);
}

}  // namespace

std::string UnknownCommand(const Command& command, const std::string& word) {
  std::string nearest;
  // A command with more than half of the letters different is no misspelling of the word. Of
  // equally near commands the first in the order of `forebay --help` is suggested.
  std::size_t nearest_distance = word.size() / 2 + 1;
  for (const std::string& name : command.CommandNames()) {
    const std::size_t distance = EditDistance(name, word);
    if (distance >= nearest_distance) continue;
    nearest = name;
    nearest_distance = distance;
  }
  return fmt::format("there is no command '{}'; {}`forebay help` lists all", word,
                     nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest));
}

void AddHelp(Command& program, CommandContext& context) {
  Command command =
      program.AddCommand("help", "Show the options of a command, as its --help does.");
  auto words = std::make_shared<std::vector<std::string>>();
  command.AddOption("COMMAND", *words, "The command (default: the list of all)");
  // `program` is copied. It only points to the command line, which outlives this command, while the
  // caller's object need not.
  command.OnRun([program, &context, words]() -> Status {
    PrintHelp(program, *words, context);
    return {};
  });
}

}  // namespace forebay::cli
