// Writes the completion script of a program for bash. The script is two tables, written as shell
// functions with a `case`, and one function that walks the words typed so far. PROGRAM_command says
// what can follow a command, PROGRAM_value says what the value of an option is, and the walk uses
// them to find the command that the cursor is in. manual_test.py sources the script and asks it.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "deploy/manual/completion.h"

namespace forebay::manual {
namespace {

// The text that follows the tables; FUNCTION and PROGRAM are replaced. The walk has to know which
// options take a value: in `forebay --address stage ver` the word `stage` is a value, and only the
// other words decide on the command. A value that begins with "of " is a list of words to choose
// from; "word", the value of an option that takes any text, offers nothing.
constexpr const char* kWalk = R"(FUNCTION() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command='' word commands options argument value
  local -i i
  # To bash "=" is a word of its own: --tier=ram are three.
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  fi
  FUNCTION_command ''
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    FUNCTION_value "$command" "$word"
    if [[ -n $value ]]; then
      if [[ ${COMP_WORDS[i+1]} == '=' ]]; then i+=2; else i+=1; fi
    elif [[ " $commands " == *" $word "* ]]; then
      command+=${command:+ }$word
      FUNCTION_command "$command"
    fi
  done
  FUNCTION_value "$command" "$previous"
  COMPREPLY=()
  if [[ -n $value ]]; then
    :
  elif [[ $current == -* ]]; then
    value="of $options"
  elif [[ -n $commands ]]; then
    value="of $commands"
  else
    value=$argument
  fi
  case $value in
    file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    folder)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    'of '*)
      mapfile -t COMPREPLY < <(compgen -W "${value#of }" -- "$current") ;;
  esac
}
complete -F FUNCTION PROGRAM
)";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// The words behind the program's name, as in "compress bench"; empty for the program itself. The
// walk collects the same text in $command, and the tables are looked up by it.
std::string Place(const CommandDescription& command) {
  return fmt::format("{}", fmt::join(command.words.begin() + 1, command.words.end(), " "));
}

std::vector<std::string> NamesOf(const std::vector<CommandDescription>& commands) {
  std::vector<std::string> names;
  for (const CommandDescription& command : commands) names.push_back(command.words.back());
  return names;
}

// The script's name for what the value of an option is; empty if it takes none.
std::string ValueText(const OptionDescription& option, const CommandDescription& program) {
  switch (option.kind) {
    case ValueKind::kNone: return {};
    case ValueKind::kWord: return "word";
    case ValueKind::kChoice: return fmt::format("of {}", fmt::join(option.choices, " "));
    case ValueKind::kFile: return "file";
    case ValueKind::kFolder: return "folder";
    case ValueKind::kCommand:
      return fmt::format("of {}", fmt::join(NamesOf(program.commands), " "));
  }
  return {};
}

// Rows of the first table: one for `command` and one for each command below it. The program's own
// options may stand behind any command, so they are in every row; --help is an option of both and
// is listed once.
std::string CommandRows(const CommandDescription& command, const CommandDescription& program) {
  std::vector<std::string> options;
  for (const auto* list : {&command.options, &program.options}) {
    for (const OptionDescription& option : *list) {
      for (const std::string& name : option.names) {
        if (std::ranges::find(options, name) == options.end()) options.push_back(name);
      }
    }
  }
  // The walk does not count arguments. If any of them is a file, files are offered for all, because
  // a path is the longest to type; otherwise the first one decides.
  std::string argument;
  for (const OptionDescription& one : command.arguments) {
    const std::string value = ValueText(one, program);
    if (argument.empty() || value == "file") argument = value;
  }
  std::string rows = fmt::format("    '{}')\n      commands='{}'\n      options='{}'\n"
                                 "      argument='{}' ;;\n",
                                 Place(command), fmt::join(NamesOf(command.commands), " "),
                                 fmt::join(options, " "), argument);
  for (const CommandDescription& below : command.commands) rows += CommandRows(below, program);
  return rows;
}

// Rows of the second table. bash takes the first pattern that matches, so a command's own option
// comes before one of the same name of the program, whose pattern matches after every command.
std::string ValueRows(const CommandDescription& command, const CommandDescription& program) {
  std::string rows;
  for (const CommandDescription& below : command.commands) rows += ValueRows(below, program);
  for (const OptionDescription& option : command.options) {
    if (option.kind == ValueKind::kNone) continue;
    std::string patterns;
    for (const std::string& name : option.names) {
      patterns += patterns.empty() ? "" : "|";
      patterns += &command == &program ? fmt::format("*' {}'", name)
                                       : fmt::format("'{} {}'", Place(command), name);
    }
    rows += fmt::format("    {}) value='{}' ;;\n", patterns, ValueText(option, program));
  }
  return rows;
}

}  // namespace

std::string BashCompletion(const CommandDescription& program) {
  const std::string name = program.words.front();
  const std::string function = "_" + Replaced(name, "-", "_");
  std::string script =
      fmt::format("# bash completion of {}, made from its command definitions.\n\n", name);
  script += fmt::format("# What can follow command $1: commands, options, or an argument.\n"
                        "{}_command() {{\n  case \"$1\" in\n{}  esac\n}}\n\n",
                        function, CommandRows(program, program));
  script += fmt::format("# What the value of command $1's option $2 is; empty: it takes none.\n"
                        "{}_value() {{\n  value=''\n  case \"$1 $2\" in\n{}    *) ;;\n  esac\n"
                        "}}\n\n",
                        function, ValueRows(program, program));
  return script + Replaced(Replaced(kWalk, "FUNCTION", function), "PROGRAM", name);
}

}  // namespace forebay::manual
