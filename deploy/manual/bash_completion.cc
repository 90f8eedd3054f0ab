// The script is two tables, of commands and of options' values, and one function that walks the
// words typed so far.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "deploy/manual/completion.h"

namespace forebay::manual {
namespace {

// What follows the tables. FUNCTION stands for the program's function.
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

// Behind the program's name: "compress bench".
std::string Place(const CommandDescription& command) {
  return fmt::format("{}", fmt::join(command.words.begin() + 1, command.words.end(), " "));
}

std::vector<std::string> NamesOf(const std::vector<CommandDescription>& commands) {
  std::vector<std::string> names;
  for (const CommandDescription& command : commands) names.push_back(command.words.back());
  return names;
}

// What the script calls the value of an option; empty: of none.
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

std::string CommandRows(const CommandDescription& command, const CommandDescription& program) {
  std::vector<std::string> options;
  for (const auto* list : {&command.options, &program.options}) {
    for (const OptionDescription& option : *list) {
      for (const std::string& name : option.names) {
        if (std::ranges::find(options, name) == options.end()) options.push_back(name);
      }
    }
  }
  // Arguments are not told apart by place: one that is a file has files completed for all.
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

// The program's own options come last and for every command.
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
