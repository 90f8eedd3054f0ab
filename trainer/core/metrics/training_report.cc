// The figures of a run as a table for people, as JSON for programs (`forebay-train-summary-1`), and
// as a loss curve with one line per step. Keys that are in the JSON stay in it under their names,
// because scripts read them; figures that are not known are null.
#include "trainer/core/metrics/training_report.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "trainer/core/metrics/text_file.h"

namespace forebay::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTableHeader =
    "global_step,epoch,loss,learning_rate,evaluation_loss,metric,score\n";

double Seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// 0 where there is no whole: a run that was stopped before its first step has a report, too.
double Percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// The best of at least one evaluation. The metric decides whether more or less is better.
double BestScore(const TrainingReport& report) {
  double best = report.evaluations.front().score;
  for (const EvaluationFigures& figures : report.evaluations) {
    // Comparisons with NaN are false, so a NaN never replaces a number.
    if (report.metric.Better(figures.score, best)) best = figures.score;
  }
  return best;
}

// The score stands under the name of its metric, and the key "metric" tells the name, so that
// scripts for one metric and for any can both read it.
Json ToJson(const Metric& metric, const EvaluationFigures& figures) {
  return {{"epoch", figures.epoch},
          {"samples", figures.samples},
          {"metric", metric.name},
          {std::string(metric.name), figures.score},
          {"loss", figures.loss},
          {"seconds", figures.seconds}};
}

// Where the time of a rank went over the whole run, with the names that the lines of single steps
// have.
Json ToJson(const RankTotals& totals) {
  Json rank = {{"steps", totals.steps}, {"step_s", Seconds(totals.account.step_ns)}};
  for (std::size_t at = 0; at < kTimeClasses; ++at) {
    rank[std::string(Name(static_cast<TimeClass>(at))) + "_s"] = Seconds(totals.account.ns[at]);
  }
  for (std::size_t at = 0; at < kByteChannels; ++at) {
    rank[std::string(Name(static_cast<ByteChannel>(at))) + "_bytes"] = totals.account.bytes[at];
  }
  rank["peak_bytes"] = totals.account.peak_bytes;
  rank["tflops"] = totals.TeraflopsPerSecond();
  rank["mfu"] = nullptr;
  if (totals.Utilisation() >= 0) rank["mfu"] = totals.Utilisation();
  return rank;
}

}  // namespace

// The wait for the first batch is part of it: users wait for that, too.
double TrainingReport::StallPercent() const { return Percent(wait_ns, loop_ns); }

double TrainingReport::WarmStallPercent() const {
  // The first batch waits for the daemon to open the data set, which no later batch does.
  // Both subtractions below are of unsigned numbers.
  if (loop_ns <= first_wait_ns || wait_ns <= first_wait_ns) return 0;
  return Percent(wait_ns - first_wait_ns, loop_ns - first_wait_ns);
}

double TrainingReport::SamplesPerSecond() const {
  return train_ns == 0 ? 0 : static_cast<double>(samples) / Seconds(train_ns);
}

std::string ClosingTable(const TrainingReport& report) {
  std::string table = report.completed ? "Training completed\n"
                                       : "Training stopped by a signal or its time limit\n";
  // Rows that say nothing, such as switches of a run without any, are left out.
  const auto row = [&table](std::string_view name, const std::string& value) {
    table += fmt::format("  {:<28}{:>16}\n", name, value);
  };
  row("samples trained on", fmt::format("{}", report.samples));
  row("training rate", fmt::format("{:.0f} samples/s", report.SamplesPerSecond()));
  row("trainer stall", fmt::format("{:.2f} %", report.StallPercent()));
  row("  after the first batch", fmt::format("{:.2f} %", report.WarmStallPercent()));
  row("first batch", fmt::format("{:.1f} ms", Seconds(report.first_batch_ns) * 1e3));
  row("training time", fmt::format("{:.1f} s", Seconds(report.loop_ns)));
  row("last training loss", fmt::format("{:.4f}", report.last_loss));
  if (!report.evaluations.empty()) {
    const EvaluationFigures& last = report.evaluations.back();
    row(fmt::format("test {}", report.metric.name), fmt::format("{:.4f}", last.score));
    row("  samples evaluated", fmt::format("{}", last.samples));
    if (report.target_reached) row("  target", "reached");
  }
  row("ranks x threads", fmt::format("{} x {}", report.ranks, report.threads));
  row("replicas x stages",
      fmt::format("{} x {}", report.layout.replicas, report.layout.stages));
  if (report.switches > 0) row("  layouts switched", fmt::format("{}", report.switches));
  if (report.skipped_steps > 0) row("steps left out", fmt::format("{}", report.skipped_steps));
  row("weights digest", fmt::format("{:016x}", report.weights_digest));
  if (!report.layout_dependence.empty()) {
    table += "  they depend on the layout: " + report.layout_dependence + "\n";
  }
  if (!report.rank_totals.empty() && report.steps > 0) {
    table += fmt::format("  {:<28}{:>14.1f} %\n", "bubble", 100 * BubbleOf(report.rank_totals));
    table += RankTable(report.rank_totals);
  }
  if (report.output_failures > 0) {
    row("failures of metrics, trace", fmt::format("{}", report.output_failures));
  }
  if (report.checkpoint_ns > 0) {
    row("stood still for checkpoints", fmt::format("{:.2f} s", Seconds(report.checkpoint_ns)));
  }
  if (!report.checkpoint.empty()) table += "  checkpoint  " + report.checkpoint + "\n";
  return table;
}

std::string SummaryJson(const TrainingReport& report) {
  Json evaluations = Json::array();
  for (const EvaluationFigures& figures : report.evaluations) {
    evaluations.push_back(ToJson(report.metric, figures));
  }
  Json ranks = Json::array();
  for (const RankTotals& totals : report.rank_totals) ranks.push_back(ToJson(totals));
  // A run that was stopped has a summary as well, which says so.
  Json summary = {
      {"schema", "forebay-train-summary-1"},
      {"status", report.completed ? "completed" : "stopped"},
      {"samples", report.samples},
      {"steps", report.steps},
      {"first_global_step", report.first_global_step},
      {"samples_per_s", report.SamplesPerSecond()},
      {"stall_percent", report.StallPercent()},
      {"warm_stall_percent", report.WarmStallPercent()},
      {"first_batch_ms", Seconds(report.first_batch_ns) * 1e3},
      {"loop_s", Seconds(report.loop_ns)},
      {"train_s", Seconds(report.train_ns)},
      {"wait_s", Seconds(report.wait_ns)},
      // JSON has no NaN; the library writes null for it.
      {"last_loss", report.last_loss},
      {"metric", report.metric.name},
      // The keys of the last and of the best score stand here, so that they keep this place; a run
      // with evaluations fills them in below.
      {fmt::format("test_{}", report.metric.name), nullptr},
      {fmt::format("best_test_{}", report.metric.name), nullptr},
      {"target_reached", report.target_reached},
      {"evaluations", std::move(evaluations)},
      {"ranks", report.ranks},
      {"threads", report.threads},
      {"replicas", report.layout.replicas},
      {"stages", report.layout.stages},
      {"layout_switches", report.switches},
      {"skipped_steps", report.skipped_steps},
      {"weights_digest", fmt::format("{:016x}", report.weights_digest)},
      {"layout_dependence", nullptr},
      {"blas", {{"name", report.blas}, {"gemm_gflops", report.blas_gflops}}},
      {"checkpoint", report.checkpoint},
      {"output_failures", report.output_failures},
      {"checkpoint_s", Seconds(report.checkpoint_ns)},
      {"bubble", BubbleOf(report.rank_totals)},
      {"rank_totals", std::move(ranks)},
  };
  if (!report.layout_dependence.empty()) {
    summary["layout_dependence"] = report.layout_dependence;
  }
  if (!report.evaluations.empty()) {
    summary[fmt::format("test_{}", report.metric.name)] = report.evaluations.back().score;
    summary[fmt::format("best_test_{}", report.metric.name)] = BestScore(report);
  }
  // Losses may be NaN in a summary of a failed run, and paths may be no UTF-8.
  return summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status WriteSummary(const std::string& path, const TrainingReport& report) {
  return WriteTextFile(path, SummaryJson(report));
}

// Opens the file of JSON lines and the table beside it. Either path may be empty.
Result<MetricsFile> MetricsFile::Open(const std::string& path, bool append,
                                      const std::string& table_path) {
  MetricsFile metrics;
  if (!path.empty()) {
    FOREBAY_ASSIGN(metrics.file_, LineFile::Open(path, append));
  }
  if (table_path.empty()) return metrics;
  // A resumed run appends to the table and must not repeat its header.
  std::error_code none;  // no file, which is empty
  metrics.begins_table_ =
      !append || std::filesystem::file_size(table_path, none) == 0 || none;
  FOREBAY_ASSIGN(metrics.table_, LineFile::Open(table_path, append));
  return metrics;
}

Status MetricsFile::Step(const StepFigures& figures) {
  // Only rank 0 has these files.
  if (!file_.is_open() && !table_.is_open()) return {};
  steps_ = figures.global_step + 1;
  return Write(Json({{"event", "step"},
                     {"global_step", figures.global_step},
                     {"epoch", figures.epoch},
                     {"step", figures.step},
                     {"loss", figures.loss},
                     {"learning_rate", figures.learning_rate}})
                   .dump(),
               fmt::format("{},{},{},{},,,", figures.global_step, figures.epoch, figures.loss,
                           figures.learning_rate));
}

Status MetricsFile::Evaluation(const Metric& metric, const EvaluationFigures& figures) {
  if (!file_.is_open() && !table_.is_open()) return {};
  Json line = {{"event", "evaluation"}};
  // An evaluation has the number of steps that were trained before it.
  line.update(ToJson(metric, figures));
  return Write(line.dump(), fmt::format("{},{},,,{},{},{}", steps_, figures.epoch, figures.loss,
                                        metric.name, figures.score));
}

// A reader of the file learns that the steps from here on replace those that it has seen.
Status MetricsFile::Resumed(std::uint64_t global_step) {
  steps_ = global_step;
  if (!file_.is_open()) return {};
  return Write(Json({{"event", "resumed"}, {"global_step", global_step}}).dump(), "");
}

// Both are tried: a disk may take one of them.
Status MetricsFile::Write(const std::string& line, const std::string& row) {
  file_.Add(line + "\n");
  // The header goes with the first row that the disk takes.
  if (begins_table_) table_.Add(kTableHeader);
  if (!row.empty()) table_.Add(row + "\n");
  // A line that the disk refuses is lost; the next one is tried again.
  const Status written = file_.Flush();
  const Status tabled = table_.Flush();
  if (tabled.has_value()) begins_table_ = false;
  return written.has_value() ? tabled : written;
}

}  // namespace forebay::train
