// Writes the completion script of a program for zsh. The script has one function for each command,
// which passes the options and their help to zsh's _arguments. Where a command has commands below
// it, its function then calls the one of the command that was typed. write_manual.cc calls this for
// each program; zsh's completion system runs the script when the program is first completed.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "deploy/manual/completion.h"

namespace forebay::manual {
namespace {

// Text for a specification of _arguments, which stands between single quotes. The shell takes the
// quote for itself, and _arguments takes brackets, colons and backslashes; "$" and "`" mean nothing
// within single quotes.
std::string Quoted(std::string_view text) {
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

// A name such as "_forebay_compress_bench". A dash within a word becomes an underscore.
std::string FunctionName(const CommandDescription& command) {
  std::string name = "_" + command.Name("_");
  std::ranges::replace(name, '-', '_');
  return name;
}

// The part of a specification that says how zsh completes a value, ":message:action". The message
// describes the value. The action " " offers nothing and lets the user type.
std::string Action(const OptionDescription& option, const CommandDescription& program) {
  const std::string message =
      ":" + Quoted(option.names.front().starts_with('-') ? option.value : option.names.front());
  std::string words;
  switch (option.kind) {
    case ValueKind::kNone: return {};
    case ValueKind::kWord: return message + ": ";
    case ValueKind::kFile: return message + ":_files";
    case ValueKind::kFolder: return message + ":_files -/";
    case ValueKind::kChoice:
      for (const std::string& choice : option.choices) words += " " + Quoted(choice);
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
                                     long_value ? "=" : "", Quoted(option.help),
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

// The functions of `command` and of all commands below it. The latter come first in the text, but
// the order is of no importance: they are called only once all are defined.
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
    // The first word goes to the state `command`, the rest to the state `argument`. "*::" makes
    // $words begin at the command below, so its function sees its own words only.
    specs.push_back("'1:command:->command'");
    specs.push_back("'*::argument:->argument'");
    std::string described, calls;
    for (const CommandDescription& below : command.commands) {
      described += fmt::format("        '{}:{}'\n", below.words.back(), Quoted(below.summary));
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
  // zsh runs the whole file at the first completion, as the body of the function that compinit
  // registered for it. So the last line has to call the function that the file has just defined.
  return fmt::format("#compdef {}\n# zsh completion of {}, made from its command definitions.\n\n"
                     "{}{} \"$@\"\n",
                     name, name, Function(program, program), FunctionName(program));
}

}  // namespace forebay::manual
