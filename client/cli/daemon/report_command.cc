// `forebay report`: the closing table of a run: what was read from the GFS against what the data
// sets hold, hits by tier, and, where the trainer left a summary, how it fared. The figures are the
// daemon's counts since its start, so the table is about a run where the daemon started with the
// job.
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/human_text.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::cli {
namespace {

constexpr std::string_view kTrainerSchema = "forebay-train-summary-1";

// The trainer's summary file; nothing where none was named.
Result<std::optional<ParsedJson>> ReadTrainer(const std::string& path) {
  if (path.empty()) return std::optional<ParsedJson>();
  std::ifstream file(path);
  if (!file) return Error(ErrorCode::kNotFound, fmt::format("cannot open {}", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::optional<ParsedJson> summary = ParsedJson::Parse(text);
  // The schema names the version of the summary. Figures of another version might mean other
  // things.
  if (!summary || summary->Text("schema") != kTrainerSchema) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is no summary of forebay-train (schema {})", path,
                             kTrainerSchema));
  }
  return summary;
}

// Both forms of output are made from this struct, so the table and the JSON cannot differ.
struct RunReport {
  std::uint64_t dataset_bytes = 0;
  std::uint64_t hit_samples = 0;
  v1::StatusReply status;
  std::optional<ParsedJson> trainer;
};

double Percent(std::uint64_t part, std::uint64_t whole) {
  // Nothing was staged or read yet: 0 and not a division by 0.
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void PrintTable(const RunReport& run, std::ostream& out) {
  TextTable table({"FIGURE", "VALUE", ""});
  const std::uint64_t gfs = run.status.gfs().bytes();
  table.Add({"data sets", HumanBytes(run.dataset_bytes), ""});
  // The figure that the whole service is for: 100 % means that each byte was read once.
  table.Add({"read from the GFS", HumanBytes(gfs),
             fmt::format("{:.1f} % of the data sets, {} opens", Percent(gfs, run.dataset_bytes),
                         HumanCount(run.status.gfs().opens()))});
  for (const v1::TierStatus& tier : run.status.tiers()) {
    table.Add({fmt::format("samples from {}", tier.name()), HumanCount(tier.hit_samples()),
               fmt::format("{:.1f} % of hits", Percent(tier.hit_samples(), run.hit_samples))});
  }
  for (const v1::TierStatus& tier : run.status.tiers()) {
    // A row of zeros for each tier would make damage harder to see.
    if (tier.bad_extents() == 0) continue;
    table.Add({fmt::format("damaged extents in {}", tier.name()), HumanCount(tier.bad_extents()),
               "dropped and fetched again"});
  }
  if (run.trainer) {
    table.Add({"training rate",
               fmt::format("{:.0f} samples/s", run.trainer->Number("samples_per_s")), ""});
    table.Add({"trainer stall", fmt::format("{:.2f} %", run.trainer->Number("stall_percent")),
               fmt::format("{:.2f} % after the first batch",
                           run.trainer->Number("warm_stall_percent"))});
    table.Add({"first batch", fmt::format("{:.1f} ms", run.trainer->Number("first_batch_ms")),
               ""});
    table.Add({"test accuracy", fmt::format("{:.4f}", run.trainer->Number("test_accuracy")), ""});
  }
  out << table.ToString();
}

JsonObject ReportJson(const RunReport& run) {
  JsonObject json = {{"dataset_bytes", run.dataset_bytes},
                     {"gfs_bytes", run.status.gfs().bytes()},
                     {"gfs_opens", run.status.gfs().opens()},
                     // Always an object, so that a script need not ask whether the member is there.
                     {"trainer", run.trainer ? run.trainer->value() : JsonValue(JsonObject())}};
  // Without tiers there is nothing to count. Absent members say so; zeros would mean no hits.
  if (run.status.tiers().empty()) return json;
  // Each figure has the tier's name as its key and not the tier's place, because a daemon may have
  // one tier or several.
  JsonObject hits, bad_extents;
  for (const v1::TierStatus& tier : run.status.tiers()) {
    hits.Add(tier.name(),
             JsonObject({{"samples", tier.hit_samples()}, {"bytes", tier.hit_bytes()}}));
    bad_extents.Add(tier.name(), tier.bad_extents());
  }
  json.Add("hits", hits);
  json.Add("bad_extents", bad_extents);
  return json;
}

Status Run(CommandContext& context, const std::string& trainer_path) {
  RunReport run;
  // The file first: a mistyped name should not wait for a daemon.
  FOREBAY_ASSIGN(run.trainer, ReadTrainer(trainer_path));
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  FOREBAY_TRY(link.AskStatus(run.status));
  for (const v1::DatasetStatus& dataset : run.status.datasets()) {
    run.dataset_bytes += dataset.total_bytes();
  }
  for (const v1::TierStatus& tier : run.status.tiers()) run.hit_samples += tier.hit_samples();
  if (context.json) {
    context.PrintJson("report", ReportJson(run));
  } else {
    PrintTable(run, context.out);
  }
  return {};
}

}  // namespace

void AddReport(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "report", "The closing table of a run: GFS bytes against data sets, hits by tier.");
  auto trainer = std::make_shared<std::string>();
  command.AddOption("--trainer", *trainer, "Summary file of forebay-train (--summary-json)")
      .ValueName("FILE");
  command.OnRun([&context, trainer] { return Run(context, *trainer); });
}

}  // namespace forebay::cli
