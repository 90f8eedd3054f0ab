// One function a command, each of which hands zsh's _arguments the options with their help; where
// there are commands below, it calls the next one's function.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "deploy/manual/completion.h"

namespace forebay::manual {
namespace {

// In a specification of _arguments, between single quotes.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '\'': escaped += "'\\''"; break;
      case '\n': escaped += ' '; break;
      case '\\':
      case '[':
      case ']':
      case ':': escaped += std::string("\\") + c; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string FunctionName(const CommandDescription& command) {
  std::string name = "_" + command.Name("_");
  std::ranges::replace(name, '-', '_');
  return name;
}

// How zsh completes it: ":message:action".
std::string Action(const OptionDescription& option, const CommandDescription& program) {
  const std::string message =
      ":" + Escaped(option.names.front().starts_with('-') ? option.value : option.names.front());
  std::string words;
  switch (option.kind) {
    case ValueKind::kNone: return {};
    case ValueKind::kWord: return message + ": ";
    case ValueKind::kFile: return message + ":_files";
    case ValueKind::kFolder: return message + ":_files -/";
    case ValueKind::kChoice:
      for (const std::string& choice : option.choices) words += " " + Escaped(choice);
      break;
    case ValueKind::kCommand:
      for (const CommandDescription& one : program.commands) words += " " + one.words.back();
      break;
  }
  return fmt::format("{}:({})", message, words.substr(1));
}

void AddOptions(const CommandDescription& command, const CommandDescription& program,
                std::vector<std::string>& specs) {
  for (const OptionDescription& option : command.options) {
    for (const std::string& name : option.names) {
      // A long name takes its value behind "=" as well, a flag none.
      const bool long_value = option.kind != ValueKind::kNone && name.starts_with("--");
      std::string spec = fmt::format("'{}{}{}[{}]{}'", option.repeats ? "*" : "", name,
                                     long_value ? "=" : "", Escaped(option.help),
                                     Action(option, program));
      // The first definition of a name counts: a command's own before the program's.
      const auto same = [&name](const std::string& other) {
        const std::size_t begin = other.find('-');
        return other.substr(begin, other.find_first_of("=[", begin) - begin) == name;
      };
      if (std::ranges::none_of(specs, same)) specs.push_back(std::move(spec));
    }
  }
}

std::string Function(const CommandDescription& command, const CommandDescription& program) {
  std::vector<std::string> specs;
  AddOptions(command, program, specs);
  AddOptions(program, program, specs);
  for (const OptionDescription& argument : command.arguments) {
    specs.push_back(fmt::format("'{}{}'", argument.repeats ? "*" : "", Action(argument, program)));
  }
  std::string text;
  std::string after;
  if (!command.commands.empty()) {
    specs.push_back("'1:command:->command'");
    specs.push_back("'*::argument:->argument'");
    std::string described, calls;
    for (const CommandDescription& below : command.commands) {
      described += fmt::format("        '{}:{}'\n", below.words.back(), Escaped(below.summary));
      calls += fmt::format("        {}) {} ;;\n", below.words.back(), FunctionName(below));
      text += Function(below, program);
    }
    after = fmt::format("  case $state in\n    command)\n      commands=(\n{}      )\n"
                        "      _describe -t commands command commands ;;\n    argument)\n"
                        "      case $words[1] in\n{}      esac ;;\n  esac\n",
                        described, calls);
  }
  text += fmt::format("{}() {{\n  local curcontext=\"$curcontext\" state line\n"
                      "  local -a commands\n  _arguments -C",
                      FunctionName(command));
  for (const std::string& spec : specs) text += " \\\n    " + spec;
  return text + "\n" + after + "}\n\n";
}

}  // namespace

std::string ZshCompletion(const CommandDescription& program) {
  const std::string name = program.words.front();
  return fmt::format("#compdef {}\n# zsh completion of {}, made from its command definitions.\n\n"
                     "{}{} \"$@\"\n",
                     name, name, Function(program, program), FunctionName(program));
}

}  // namespace forebay::manual
