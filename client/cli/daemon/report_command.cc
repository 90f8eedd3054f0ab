// `forebay report`: the closing table of a run: what was read from the GFS against what the data
// sets hold, hits by tier, and, where the trainer left a summary, how it fared.
#include <fstream>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/cli/commands.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/human_text.h"
#include "client/connection/rpc_status.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

constexpr std::string_view kTrainerSchema = "forebay-train-summary-1";

// The trainer's summary file; an empty object where none was named.
Result<Json> ReadTrainer(const std::string& path) {
  if (path.empty()) return Json::object();
  std::ifstream file(path);
  if (!file) return Error(ErrorCode::kNotFound, fmt::format("cannot open {}", path));
  Json summary = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object() || summary.value("schema", "") != kTrainerSchema) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is no summary of forebay-train (schema {})", path,
                             kTrainerSchema));
  }
  return summary;
}

double Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

struct RunReport {
  std::uint64_t dataset_bytes = 0;
  std::uint64_t hit_samples = 0;
  v1::StatusReply status;
  Json trainer;
};

double Percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void PrintTable(const RunReport& run, std::ostream& out) {
  TextTable table({"FIGURE", "VALUE", ""});
  const std::uint64_t gfs = run.status.gfs().bytes();
  table.Add({"data sets", HumanBytes(run.dataset_bytes), ""});
  table.Add({"read from the GFS", HumanBytes(gfs),
             fmt::format("{:.1f} % of the data sets, {} opens", Percent(gfs, run.dataset_bytes),
                         HumanCount(run.status.gfs().opens()))});
  for (const v1::TierStatus& tier : run.status.tiers()) {
    table.Add({fmt::format("samples from {}", tier.name()), HumanCount(tier.hit_samples()),
               fmt::format("{:.1f} % of hits", Percent(tier.hit_samples(), run.hit_samples))});
  }
  for (const v1::TierStatus& tier : run.status.tiers()) {
    if (tier.bad_extents() == 0) continue;
    table.Add({fmt::format("damaged extents in {}", tier.name()), HumanCount(tier.bad_extents()),
               "dropped and fetched again"});
  }
  if (!run.trainer.empty()) {
    table.Add({"training rate",
               fmt::format("{:.0f} samples/s", Number(run.trainer, "samples_per_s")), ""});
    table.Add({"trainer stall", fmt::format("{:.2f} %", Number(run.trainer, "stall_percent")),
               fmt::format("{:.2f} % after the first batch",
                           Number(run.trainer, "warm_stall_percent"))});
    table.Add({"first batch", fmt::format("{:.1f} ms", Number(run.trainer, "first_batch_ms")),
               ""});
    table.Add({"test accuracy", fmt::format("{:.4f}", Number(run.trainer, "test_accuracy")), ""});
  }
  out << table.ToString();
}

Json ReportJson(const RunReport& run) {
  Json json = {{"dataset_bytes", run.dataset_bytes},
               {"gfs_bytes", run.status.gfs().bytes()},
               {"gfs_opens", run.status.gfs().opens()},
               {"trainer", run.trainer}};
  for (const v1::TierStatus& tier : run.status.tiers()) {
    json["hits"][tier.name()] = {{"samples", tier.hit_samples()}, {"bytes", tier.hit_bytes()}};
    json["bad_extents"][tier.name()] = tier.bad_extents();
  }
  return json;
}

Status Run(CommandContext& context, const std::string& trainer_path) {
  RunReport run;
  FOREBAY_ASSIGN(run.trainer, ReadTrainer(trainer_path));
  FOREBAY_ASSIGN(const AdminLink link, ConnectAdmin(context));
  grpc::ClientContext call;
  SetDeadline(call, std::chrono::milliseconds(limits::kCallDeadlineMs));
  FOREBAY_TRY(internal::StatusFromRpc(
      link.stub->Status(&call, v1::StatusRequest(), &run.status)));
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

void AddReport(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "report", "The closing table of a run: GFS bytes against data sets, hits by tier.");
  auto trainer = std::make_shared<std::string>();
  command->add_option("--trainer", *trainer, "Summary file of forebay-train (--summary-json)")
      ->type_name("FILE");
  command->callback([&context, trainer] {
    const Status status = Run(context, *trainer);
    if (!status.has_value()) context.Fail(status.error());
  });
}

}  // namespace forebay::cli
