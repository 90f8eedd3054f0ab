// How commands declare their command lines: options, flags, arguments and subcommands.
//
//   void AddUnpack(Command& program, CommandContext& context) {
//     Command command = program.AddCommand("unpack", "Write the fields of a pack as arrays.");
//     auto arguments = std::make_shared<UnpackArguments>();
//     command.AddOption("PACK", arguments->path, "The pack file").Required().ValueName("FILE");
//     command.AddFlag("--images", arguments->images, "Write images");
//     command.OnRun([&context, arguments] { return RunUnpack(context, *arguments); });
//   }
//
// The parser, `forebay help`, the manual and the completions of shells are made from these
// declarations. The library that parses (CLI11) is used in command_declaration.cc alone, because
// its templates took longer to compile than the commands.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace forebay::cli {

struct CommandContext;

// An option that was declared. Cheap to copy; valid as long as the command line. The calls return
// the option again, so that they can follow one another.
class OptionDeclaration {
 public:
  explicit OptionDeclaration(CLI::Option& option) : option_(&option) {}

  OptionDeclaration Required();
  // What a value is called in help, as in "FILE" or "NAME|FILE"; FILE and FOLDER are completed.
  OptionDeclaration ValueName(const char* name);
  // How many values there may be (for an argument that is a list).
  OptionDeclaration Count(int least, int most);

  // For an option that may be repeated: one value each time, as it is written. Without this, it
  // takes all words that follow, and [a,b] is split.
  OptionDeclaration Verbatim();

  // What a value must be; other values are refused with exit code kUsage.
  OptionDeclaration OneOf(std::initializer_list<const char*> choices);
  OptionDeclaration Within(int least, int most);
  OptionDeclaration Within(unsigned least, unsigned most);
  OptionDeclaration Within(double least, double most);
  OptionDeclaration Positive();
  OptionDeclaration ExistingFile();
  // A number of bytes, with or without a unit: "4096", "1GiB".
  OptionDeclaration Bytes();

 private:
  CLI::Option* option_;
};

// A command that is being declared: `forebay` itself, or one of its subcommands. Cheap to copy;
// valid as long as the command line. Values are written to variables of the caller when the command
// line is parsed; what is not given keeps its value.
class Command {
 public:
  Command(CLI::App& app, CommandContext& context) : app_(&app), context_(&context) {}

  Command AddCommand(const char* name, const char* summary);
  // Says that one of the subcommands has to be named.
  void RequireCommand();

  // `names` are those of an option ("-a,--address"), or of an argument known by its place ("PACK").
  OptionDeclaration AddOption(const char* names, std::string& value, const char* help);
  OptionDeclaration AddOption(const char* names, std::vector<std::string>& values,
                              const char* help);
  OptionDeclaration AddOption(const char* names, std::vector<int>& values, const char* help);
  OptionDeclaration AddOption(const char* names, int& value, const char* help);
  OptionDeclaration AddOption(const char* names, std::int64_t& value, const char* help);
  OptionDeclaration AddOption(const char* names, std::uint32_t& value, const char* help);
  OptionDeclaration AddOption(const char* names, std::uint64_t& value, const char* help);
  OptionDeclaration AddOption(const char* names, std::optional<std::uint64_t>& value,
                              const char* help);
  OptionDeclaration AddOption(const char* names, double& value, const char* help);
  void AddFlag(const char* names, bool& value, const char* help);

  // Text below the options in help.
  void SetFooter(const char* text);
  // What the command does. It is called once the whole command line has been parsed; an error that
  // it returns is reported (CommandContext::Fail) and sets the exit code.
  void OnRun(std::function<Status()> run);

  // For the command `forebay` itself: its name and purpose. Its options may also stand behind the
  // name of a subcommand.
  void DescribeProgram(const char* name, const char* summary);
  // Adds --version.
  void AddVersion(const std::string& text);

  // The subcommand `name`, if there is one.
  std::optional<Command> Find(const std::string& name) const;
  std::vector<std::string> CommandNames() const;
  // What --help prints, for a command that the user calls `name`.
  std::string Help(const std::string& name) const;

 private:
  CLI::App* app_;
  CommandContext* context_;
};

struct CommandLineOptions {
  // Declares the commands.
  void (*define)(Command& program, CommandContext& context);
  // Where arguments are wrong: a better message than the parser's, or an empty one.
  std::string (*diagnose)(const Command& program, const std::vector<std::string>& arguments);
  std::string footer;  // below the help of commands without a footer of their own
};

// Parses `arguments` (without the program's name) and runs the command that they name. Prints help
// or the version where they ask for it, and a message where they are wrong. Returns the exit code.
int RunCommandLine(const CommandLineOptions& options, std::vector<std::string> arguments,
                   CommandContext& context);

}  // namespace forebay::cli
