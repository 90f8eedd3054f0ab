// Reads what CLI11 knows of a program's commands and options into plain values, from which manual
// pages and completions are written. CLI11 has the value, the choices and the limits of an option
// in one text, "TYPE:CHECK:CHECK", so that text is taken apart here. write_manual.cc calls this for
// each program.
#include "deploy/manual/command_description.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

namespace forebay::manual {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// From "UINT in [1 - 1024]": "1 to 1024".
std::string RangeOf(std::string_view check) {
  const std::size_t begin = check.find(" in [");
  // A text of another form is no range. It is left out, as a wrong manual is worse than a short
  // one.
  if (begin == std::string_view::npos || !check.ends_with(']')) return {};
  std::string range(check.substr(begin + 5, check.size() - begin - 6));
  const std::size_t dash = range.find(" - ");
  // A dash between numbers could be read as a minus sign.
  if (dash != std::string::npos) range.replace(dash, 3, " to ");
  return range;
}

ValueKind KindOf(std::string_view type) {
  // The first word that is known decides: of NAME|FILE a completion can offer the files.
  for (const std::string& word : Split(type, '|')) {
    if (word == "FILE" || word == "PATH") return ValueKind::kFile;
    if (word == "FOLDER") return ValueKind::kFolder;
    if (word == "COMMAND") return ValueKind::kCommand;
  }
  return ValueKind::kWord;
}

std::string NameOf(const std::string& type) {
  // Names of types say little to people who do not write programs.
  if (type == "INT" || type == "UINT") return "N";
  return type == "FLOAT" ? "X" : type;
}

// The type's name is "TYPE:CHECK:CHECK", as of CLI::Option::get_type_name.
void DescribeValue(const CLI::Option& option, OptionDescription& described) {
  const std::vector<std::string> parts = Split(option.get_type_name(), ':');
  std::string type = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string& check = parts[i];
    // A choice is shown as its words, in place of the type's name.
    if (check.starts_with('{')) {
      // No word that an option offers has a comma in it.
      described.choices = Split(std::string_view(check).substr(1, check.size() - 2), ',');
      type.clear();
      for (const std::string& choice : described.choices) {
        type += (type.empty() ? "" : "|") + choice;
      }
    } else if (check == "FILE") {
      type = check;
    } else if (check.starts_with("SIZE ")) {
      type = "SIZE";
    } else if (check == "POSITIVE") {
      described.range = "above 0";
    } else if (std::string range = RangeOf(check); !range.empty()) {
      described.range = std::move(range);
    }
  }
  // An argument is known by its name, as in "PATH".
  const bool named = option.get_positional() && type == "TEXT";
  described.kind = described.choices.empty() ? KindOf(named ? option.get_name(true) : type)
                                             : ValueKind::kChoice;
  described.value = NameOf(type);
}

OptionDescription DescribeOption(const CLI::Option& option) {
  OptionDescription described;
  if (option.get_positional()) {
    described.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  }
  described.help = option.get_description();
  described.required = option.get_required();
  // A list has no largest number of values, which CLI11 says with a very large one.
  described.repeats = option.get_expected_max() > 1;
  if (option.get_items_expected_max() > 0) DescribeValue(option, described);
  return described;
}

CommandDescription DescribeCommand(const CLI::App& command, std::vector<std::string> words) {
  CommandDescription described;
  words.push_back(command.get_name());
  described.words = words;
  described.summary = command.get_description();
  described.footer = command.get_footer();
  for (const CLI::Option* option : command.get_options()) {
    // CLI11 hides an option by giving it no group; it stays out of the manual as well.
    if (option->get_group().empty()) continue;
    auto& list = option->get_positional() ? described.arguments : described.options;
    list.push_back(DescribeOption(*option));
  }
  // A null filter gives all subcommands; without it, only those that a parse has found.
  for (const CLI::App* below : command.get_subcommands(nullptr)) {
    described.commands.push_back(DescribeCommand(*below, words));
  }
  return described;
}

}  // namespace

std::string CommandDescription::Name(const char* separator) const {
  std::string name;
  for (const std::string& word : words) name += (name.empty() ? "" : separator) + word;
  return name;
}

CommandDescription Describe(const CLI::App& program) { return DescribeCommand(program, {}); }

}  // namespace forebay::manual
