#include "client/cli/program.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/cli/command_context.h"
#include "client/cli/commands.h"
#include "client/cli/printable_stream.h"
#include "client/embedded_daemon.h"

namespace forebay::cli {
namespace {

constexpr const char* kFooter = R"(Exit codes:
  0  done
  1  failed, for a reason without a code of its own
  2  the command line is wrong
  3  the answer is no: damage found, audit failed, not everything staged
  4  no daemon answers at the address
  5  no such data set, selection or file
  6  refused: another user's or job's daemon, or another version or configuration
  7  no room: the tiers, the slots or another limit are too small for what was asked
  130  interrupted

With --json every command prints one JSON object per line; its member "schema" names the format
(docs/cli.md).)";

constexpr std::chrono::seconds kLookAround(2);

// Of this job's daemons there is one, or it is named.
std::string DefaultAddress() {
  const char* given = std::getenv("FOREBAY_ADDRESS");
  if (given != nullptr && *given != '\0') return given;
  const std::string job = internal::CurrentJob();
  std::vector<std::string> addresses = internal::AddressesOfJob(job);
  if (addresses.size() > 1) {
    addresses = internal::DaemonsOfJob(job, std::chrono::steady_clock::now() + kLookAround);
  }
  if (addresses.size() > 1) {
    throw CLI::ValidationError(
        "--address", fmt::format("several daemons run for job '{}', each with data sets of its "
                                 "own; choose one of {}",
                                 job, fmt::join(addresses, ", ")));
  }
  if (addresses.size() == 1) return addresses.front();
  return "unix:" + internal::EmbeddedDirectory(job) + "/forebayd.sock";
}

// Letters to insert, take away or replace to make one word of the other.
std::size_t EditDistance(std::string_view a, std::string_view b) {
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

// A message where the first word is no command; options before it have a value behind "=" or none.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) return {};
  const std::string& word = arguments.front();
  std::string nearest;
  std::size_t nearest_distance = word.size() / 2 + 1;  // farther ones are other words
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == word) return {};
    const std::size_t distance = EditDistance(command->get_name(), word);
    if (distance >= nearest_distance) continue;
    nearest = command->get_name();
    nearest_distance = distance;
  }
  return fmt::format("there is no command '{}'; {}`forebay help` lists all", word,
                     nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest));
}

}  // namespace

int RunForebay(std::vector<std::string> arguments, const ProgramStreams& streams) {
  PrintableStream out(streams.out), err(streams.err);
  CommandContext context{
      .out = out, .err = err, .terminal = streams.terminal, .address = {}};
  CLI::App app("Forebay: stages data sets near the GPUs and streams minibatches from there.",
               "forebay");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("-a,--address,--socket", context.address,
                 "The daemon: unix:/path (default: $FOREBAY_ADDRESS, else this job's daemon in its "
                 "default place)");
  app.add_flag("--json", context.json, "Print JSON, one object per line");
  app.add_option("--timeout-ms", context.connect_timeout_ms, "How long to wait for the daemon")
      ->check(CLI::Range(1, 3'600'000));
  app.set_version_flag("-V,--version", std::string("forebay ") + FOREBAY_VERSION);
  // Runs before the subcommand's own callback.
  app.parse_complete_callback([&context] {
    if (context.address.empty()) context.address = DefaultAddress();
    if (context.address.starts_with('/')) context.address.insert(0, "unix:");
  });
  AddDatasets(app, context);
  AddStage(app, context);
  AddStatus(app, context);
  AddReport(app, context);
  AddVerify(app, context);
  AddEvict(app, context);
  AddOrder(app, context);
  AddAudit(app, context);
  AddBench(app, context);
  AddCompress(app, context);
  AddPack(app, context);
  AddUnpack(app, context);
  AddInspect(app, context);
  AddDrain(app, context);
  if (!arguments.empty() && arguments.front() == "help") {  // help [VERB] is [VERB] --help
    arguments.erase(arguments.begin());
    arguments.insert(arguments.begin() + (arguments.empty() ? 0 : 1), "--help");
  }
  const std::string unknown = UnknownCommand(app, arguments);
  // CLI11 takes the arguments last first.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& parsed) {
    if (!unknown.empty()) {
      context.err << "forebay: " << unknown << '\n';
      return static_cast<int>(ExitCode::kUsage);
    }
    const int code = app.exit(parsed, context.out, context.err);
    return code == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  return static_cast<int>(context.exit_code);
}

}  // namespace forebay::cli
