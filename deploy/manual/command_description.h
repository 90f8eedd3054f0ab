// CommandDescription: a program's command line as plain data, read from the definition that parses
// it. Manual pages and completions are made from this.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace forebay::manual {

// What can stand for a value, as far as a shell can complete it.
enum class ValueKind {
  kNone,    // a flag
  kWord,    // anything
  kChoice,  // one of OptionDescription::choices
  kFile,
  kFolder,
  kCommand,  // a command of the program
};

// An option, or an argument that is known by its place.
struct OptionDescription {
  std::vector<std::string> names;  // "-a", "--address"; of an argument its one name
  ValueKind kind = ValueKind::kNone;
  std::string value;  // what a value is called: "FILE"; empty for a flag
  std::vector<std::string> choices;
  std::string range;  // "1 to 1024"; empty: any
  bool required = false;
  bool repeats = false;  // takes many values
  std::string help;
};

struct CommandDescription {
  std::vector<std::string> words;  // "forebay", "compress", "bench"
  std::string summary;
  std::string footer;
  std::vector<OptionDescription> options;
  std::vector<OptionDescription> arguments;
  std::vector<CommandDescription> commands;

  // The words with `separator` between them.
  std::string Name(const char* separator) const;
};

// Values are told from CLI11's name of their type: FILE (CLI::ExistingFile's, too) and PATH are
// files, FOLDER is a folder, CLI::IsMember's list is a choice; an argument that is called COMMAND
// is a command of the program. Hidden options (of the group "") are left out.
CommandDescription Describe(const CLI::App& program);

}  // namespace forebay::manual
