// `forebay stage`: brings data sets from the GFS to this node's tiers. The daemon does the work and
// sends its state again and again; this command shows it, a line for each data set, and turns the
// last state of each into the exit code. The daemon goes on where the command is interrupted.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/daemon/dataset_json.h"
#include "client/cli/human_text.h"
#include "client/cli/progress_line.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::cli {
namespace {

struct StageArguments {
  std::vector<std::string> names;
  bool no_wait = false;
  bool rebuild = false;
};

std::string Verdict(const v1::DatasetStatus& dataset) {
  if (dataset.state() == "failed") return "failed: " + dataset.error();
  return fmt::format("{}, {} samples, {} in {} extents (ram {}, ssd {}), {}; GFS read {} in {}",
                     dataset.state(), HumanCount(dataset.samples()),
                     HumanBytes(dataset.total_bytes()), HumanCount(dataset.extents()),
                     HumanBytes(dataset.ram_bytes()), HumanBytes(dataset.ssd_bytes()),
                     // GFS bytes beside the size show at once whether each byte was read once only.
                     dataset.stored_form(), HumanBytes(dataset.gfs_bytes()),
                     HumanSeconds(static_cast<double>(dataset.staging_ms()) / 1000)) +
         (dataset.other_nodes_bytes() == 0
              ? ""
              : fmt::format("; {} lie on other nodes of the job",
                            HumanBytes(dataset.other_nodes_bytes()))) +
         (dataset.unstaged_bytes() == 0
              ? ""
              : fmt::format("; {} on no tier: {}", HumanBytes(dataset.unstaged_bytes()),
                            dataset.unstaged_reason()));
}

// What has been heard of each data set so far.
class StageReport {
 public:
  StageReport(CommandContext& context, bool waited) : context_(context), waited_(waited) {}

  void Add(const v1::StageProgress& progress) {
    const v1::DatasetStatus& dataset = progress.dataset();
    // Programs get every message, in the daemon's own words.
    if (context_.json) {
      JsonObject event = DatasetJson(dataset);
      event.Add("event", progress.done() ? "done" : "progress");
      context_.PrintJson("stage", event);
    }
    if (dataset.name().empty()) return;  // the closing message of the whole operation
    // Kept also with --json, because the exit code is made from it.
    last_[dataset.name()] = dataset;
    if (context_.json) return;
    ProgressLine& line =
        lines_.try_emplace(dataset.name(), context_.out, context_.terminal).first->second;
    // Extents of other nodes are not staged here, so the bar ends at the rest.
    const std::uint64_t total = dataset.total_bytes() - dataset.other_nodes_bytes();
    const ProgressLine::State state = {.name = dataset.name(),
                                       .bytes_done = dataset.staged_bytes(),
                                       .bytes_total = total,
                                       .note = dataset.state()};
    // Without waiting, the first message of a data set is also the last one that is shown of it.
    if (!HasEnded(dataset) && waited_) {
      line.Show(state);
    // Once for each data set: the daemon repeats the state of those that are done while others go
    // on.
    } else if (reported_.insert(dataset.name()).second) {
      line.Done(state, Verdict(dataset));
    }
  }

  // Whether every data set that was heard of is staged (or, without waiting, has not failed).
  ExitCode Judge() const {
    // The daemon ends the stream without an error also where data sets failed, so the states
    // decide.
    for (const auto& [name, dataset] : last_) {
      if (dataset.state() == "failed") return ExitCode::kViolation;
      // "partly staged" counts as a failure of the command: the rest would be read from the GFS
      // during training, which a job script that staged before wanted to avoid.
      if (waited_ && dataset.state() != "staged") return ExitCode::kViolation;
    }
    return ExitCode::kOk;
  }

 private:
  static bool HasEnded(const v1::DatasetStatus& dataset) {
    return dataset.state() == "staged" || dataset.state() == "partly staged" ||
           dataset.state() == "failed";
  }

  CommandContext& context_;
  bool waited_;
  std::map<std::string, v1::DatasetStatus> last_;
  std::set<std::string> reported_;
  // One for each data set: rates and times left are measured for each from its own first message.
  std::map<std::string, ProgressLine> lines_;
};

Status RunStage(CommandContext& context, const StageArguments& arguments) {
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  StageReport report(context, !arguments.no_wait);
  FOREBAY_TRY(link.Stage({.datasets = arguments.names,
                          .wait = !arguments.no_wait,
                          .rebuild = arguments.rebuild},
                         [&](const v1::StageProgress& progress) { report.Add(progress); }));
  context.exit_code = report.Judge();
  return {};
}

}  // namespace

void AddStage(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "stage", "Bring data sets from the GFS to this node's tiers, each byte once.");
  auto arguments = std::make_shared<StageArguments>();
  command.AddOption("NAMES", arguments->names, "Data sets (default: all)");
  command.AddFlag("--no-wait", arguments->no_wait, "Start, print the state, and return");
  command.AddFlag("--rebuild", arguments->rebuild,
                    "Take the objects as they are now: ignore saved catalogs and checksums of "
                    "first reads, and read all again. In a job of several nodes, call it on each "
                    "of them");
  command.SetFooter("Interrupting the command leaves the daemon staging. Exit code 3: a data set "
                  "could not be staged, or only in part.");
  command.OnRun([&context, arguments] { return RunStage(context, *arguments); });
}

}  // namespace forebay::cli
