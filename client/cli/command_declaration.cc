// Commands and options over CLI11: each call declares the same thing there. This is the one source
// of the program that includes CLI11, so everything that needs its types is here: the types that
// values can have, the checks, parsing, and the text of help.
#include "client/cli/command_declaration.h"

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>

#include "client/cli/command_context.h"

namespace forebay::cli {

OptionDeclaration OptionDeclaration::Required() {
  option_->required();
  return *this;
}

OptionDeclaration OptionDeclaration::ValueName(const char* name) {
  option_->type_name(name);
  return *this;
}

OptionDeclaration OptionDeclaration::Count(int least, int most) {
  option_->expected(least, most);
  return *this;
}

OptionDeclaration OptionDeclaration::Verbatim() {
  option_->allow_extra_args(false);
  return *this;
}

OptionDeclaration OptionDeclaration::OneOf(std::initializer_list<const char*> choices) {
  // Copied, because the check lives as long as the command line and the initializer list does not.
  option_->check(CLI::IsMember(std::vector<std::string>(choices.begin(), choices.end())));
  return *this;
}

// Help shows the type of the limits, so there is one call for each type.
OptionDeclaration OptionDeclaration::Within(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

OptionDeclaration OptionDeclaration::Within(unsigned least, unsigned most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

OptionDeclaration OptionDeclaration::Within(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

OptionDeclaration OptionDeclaration::Positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

OptionDeclaration OptionDeclaration::ExistingFile() {
  option_->check(CLI::ExistingFile);
  return *this;
}

OptionDeclaration OptionDeclaration::Bytes() {
  // False: "1KB" means 1024 bytes, as "1KiB" does.
  option_->transform(CLI::AsSizeValue(false));
  return *this;
}

Command Command::AddCommand(const char* name, const char* summary) {
  return {*app_->add_subcommand(name, summary), *context_};
}

// Without this, a bare `forebay` would do nothing and exit with 0.
void Command::RequireCommand() { app_->require_subcommand(1); }

// One overload for each type that an option may have, so that callers see none of CLI11's
// templates, which are what makes it dear to compile.
OptionDeclaration Command::AddOption(const char* names, std::string& value, const char* help) {
  return OptionDeclaration(*app_->add_option(names, value, help));
}

OptionDeclaration Command::AddOption(const char* names, std::vector<std::string>& values,
                                     const char* help) {
  return OptionDeclaration(*app_->add_option(names, values, help));
}

OptionDeclaration Command::AddOption(const char* names, std::vector<int>& values,
                                     const char* help) {
  return OptionDeclaration(*app_->add_option(names, values, help));
}

OptionDeclaration Command::AddOption(const char* names, int& value, const char* help) {
  return OptionDeclaration(*app_->add_option(names, value, help));
}

OptionDeclaration Command::AddOption(const char* names, std::int64_t& value, const char* help) {
  return OptionDeclaration(*app_->add_option(names, value, help));
}

OptionDeclaration Command::AddOption(const char* names, std::uint32_t& value, const char* help) {
  return OptionDeclaration(*app_->add_option(names, value, help));
}

OptionDeclaration Command::AddOption(const char* names, std::uint64_t& value, const char* help) {
  return OptionDeclaration(*app_->add_option(names, value, help));
}

OptionDeclaration Command::AddOption(const char* names, std::optional<std::uint64_t>& value,
                                     const char* help) {
  return OptionDeclaration(*app_->add_option(names, value, help));
}

OptionDeclaration Command::AddOption(const char* names, double& value, const char* help) {
  return OptionDeclaration(*app_->add_option(names, value, help));
}

void Command::AddFlag(const char* names, bool& value, const char* help) {
  app_->add_flag(names, value, help);
}

void Command::SetFooter(const char* text) { app_->footer(text); }

void Command::OnRun(std::function<Status()> run) {
  // The callback runs while CLI11 parses. An error goes into the context, not through CLI11 as an
  // exception, so that it is printed like all others and has its own exit code.
  // The context outlives the command line, and the declaration object does not, so the pointer is
  // captured and not `this`.
  app_->callback([run = std::move(run), context = context_] {
    const Status status = run();
    if (!status) context->Fail(status.error());
  });
}

void Command::DescribeProgram(const char* name, const char* summary) {
  app_->name(name);
  app_->description(summary);
  // Options of the program may stand behind the command's name, too, as users type them.
  app_->fallthrough();
}

void Command::AddVersion(const std::string& text) { app_->set_version_flag("-V,--version", text); }

std::optional<Command> Command::Find(const std::string& name) const {
  for (CLI::App* const command : app_->get_subcommands([](CLI::App*) { return true; })) {
    if (command->get_name() == name) return Command(*command, *context_);
  }
  return std::nullopt;
}

std::vector<std::string> Command::CommandNames() const {
  std::vector<std::string> names;
  for (const CLI::App* const command : app_->get_subcommands([](CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string Command::Help(const std::string& name) const {
  // CLI::App::help() would describe the command that was parsed, which is `help` itself.
  return app_->get_formatter()->make_help(app_, name, CLI::AppFormatMode::Normal);
}

int RunCommandLine(const CommandLineOptions& options, std::vector<std::string> arguments,
                   CommandContext& context) {
  CLI::App app;
  app.footer(options.footer);  // first: subcommands take it over when they are added
  Command program(app, context);
  options.define(program, context);
  // Asked before parsing, which takes the arguments. It is used only where parsing fails.
  // CLI11 reports an unknown first word as a missing subcommand, which does not name the word.
  const std::string wrong = options.diagnose(program, arguments);
  context.arguments = arguments;
  // CLI11 takes the arguments last first.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& parsed) {
    if (!wrong.empty()) {
      context.err << "forebay: " << wrong << '\n';
      return static_cast<int>(ExitCode::kUsage);
    }
    // --help and --version come here as well: CLI11 throws them, with code 0.
    const int code = app.exit(parsed, context.out, context.err);
    return code == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  return static_cast<int>(context.exit_code);
}

}  // namespace forebay::cli
