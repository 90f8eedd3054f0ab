// Writes the manual pages and completions of the installed programs into a folder:
//   write_manual FOLDER    -> FOLDER/man1, FOLDER/man8, FOLDER/bash, FOLDER/zsh
// The build runs it. It links the definitions that the programs parse their command lines with,
// turns each into a CommandDescription, and writes pages and scripts from that. So the options in a
// manual cannot differ from --help. A failure to write stops the build.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "deploy/manual/command_description.h"
#include "deploy/manual/completion.h"
#include "deploy/manual/man_page.h"
#include "server/daemon/config/config.h"
#include "server/daemon/config/daemon_arguments.h"
#ifdef FOREBAY_HAS_TRAINER
#include "trainer/core/config/command_line.h"
#endif
#ifdef FOREBAY_HAS_COMPRESS_TRAIN
#include "compress/train/train_arguments.h"
#endif

namespace forebay::manual {
namespace {

namespace fs = std::filesystem;

// A command line, and the facts about its program that the command line does not say.
struct Program {
  CommandDescription command;
  ManualFacts facts;
};

// A template, because `forebay` and `forebayd` have tables of different types.
template <typename Codes>
ManualSection ExitStatus(const Codes& codes) {
  ManualSection section = {.title = "EXIT STATUS", .text = {}, .entries = {}};
  for (const auto& exit : codes) {
    section.entries.push_back(
        {.term = std::to_string(exit.code), .text = std::string(exit.meaning) + '.'});
  }
  return section;
}

// A template for the same reason: keys of the configuration and keys of a data set are two types.
template <typename Keys>
ManualSection KeySection(const std::string& title, const std::string& text, const Keys& keys) {
  ManualSection section = {.title = title, .text = text, .entries = {}};
  for (const auto& key : keys) {
    // A default that is the empty text would leave "Default: ." in the page.
    const std::string_view value = key.default_text.empty() ? "empty" : key.default_text;
    section.entries.push_back({.term = std::string(key.name),
                               .text = fmt::format("{}\nDefault: {}.", key.help, value)});
  }
  return section;
}

Program Forebay() {
  // The definitions need a stream to print to, but no command is run here. Describe copies
  // everything out of `app`, so that `app` and the variables that it refers to can end with this
  // function.
  std::ostringstream nowhere;
  cli::CommandContext context{.out = nowhere, .err = nowhere, .address = {}};
  CLI::App app;
  cli::DefineCommands(app, context);
  return {.command = Describe(app),
          .facts = {.section = 1,
                    .version = FOREBAY_VERSION,
                    .sections = {ExitStatus(cli::kExitCodeMeanings)},
                    .see_also = {"forebayd(8)"}}};
}

Program Forebayd() {
  daemon::DaemonArguments arguments;
  CLI::App app;
  daemon::DefineArguments(app, arguments);
  return {.command = Describe(app),
          .facts = {.section = 8,
                    .version = FOREBAY_VERSION,
                    .sections = {KeySection("CONFIGURATION",
                                            "Every key can be set in the TOML file given by "
                                            "--config, and overridden by --set KEY=VALUE.",
                                            daemon::ConfigKeys()),
                                 KeySection("DATA SETS",
                                            "One table [[dataset]] of the TOML file per data set.",
                                            daemon::DatasetKeys()),
                                 ExitStatus(daemon::kDaemonExitCodes)},
                    .see_also = {"forebay(1)"}}};
}

// The programs that are installed. The two that need LibTorch are built only where it was found,
// and a page must not describe a program that is not there.
std::vector<Program> Programs() {
  std::vector<Program> programs = {Forebay(), Forebayd()};
  [[maybe_unused]] const ManualFacts plain = {
      .section = 1, .version = FOREBAY_VERSION, .sections = {}, .see_also = {"forebay(1)"}};
#ifdef FOREBAY_HAS_TRAINER
  train::RawArguments raw;
  CLI::App trainer;
  train::DefineCommandLine(trainer, raw);
  programs.push_back({.command = Describe(trainer), .facts = plain});
#endif
#ifdef FOREBAY_HAS_COMPRESS_TRAIN
  compress::TrainArguments arguments;
  CLI::App compress_train;
  compress::DefineTrainArguments(compress_train, arguments);
  programs.push_back({.command = Describe(compress_train), .facts = plain});
#endif
  return programs;
}

// create_directories throws where it fails; main reports that.
bool Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::trunc);
  file << text;
  // Closed here, so that a full disk fails the build instead of leaving half a page.
  file.close();
  if (!file) fmt::print(stderr, "write_manual: cannot write {}\n", path.string());
  return !file.fail();
}

bool WriteProgram(const fs::path& folder, const Program& program) {
  const std::string name = program.command.words.front();
  const std::string pages = fmt::format("man{}", program.facts.section);
  bool written = Write(folder / "bash" / name, BashCompletion(program.command)) &&
                 Write(folder / "zsh" / ("_" + name), ZshCompletion(program.command));
  // A program has a page for itself and one for each of its commands. After the first failure the
  // others are not written: they would fail in the same way, and one message is enough.
  for (const ManualPage& page : ManualPages(program.command, program.facts)) {
    written = written && Write(folder / pages / page.file_name, page.text);
  }
  return written;
}

}  // namespace
}  // namespace forebay::manual

int main(int argc, char** argv) {
  using namespace forebay::manual;
  if (argc != 2) {
    std::fputs("usage: write_manual FOLDER\n", stderr);
    return 2;
  }
  try {
    for (const Program& program : Programs()) {
      if (!WriteProgram(argv[1], program)) return 1;
    }
  } catch (const std::exception& thrown) {
    fmt::print(stderr, "write_manual: {}\n", thrown.what());
    return 1;
  }
  return 0;
}
