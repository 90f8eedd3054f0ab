// Every rank keeps two sums of its steps, over the current window and over the run, and writes one
// JSON line for each step. Sums of all ranks are exchanged only when a window or the run ends: each
// rank fills its own part of an array that is otherwise zero, and one reduction gives all parts to
// all ranks.
#include "trainer/core/metrics/step_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace forebay::train {
namespace {

using Json = nlohmann::ordered_json;

// A rank that is killed loses its lines of this long at most.
constexpr std::uint64_t kFlushNs = 1'000'000'000;
constexpr std::size_t kTableRows = 32;
constexpr double kLeastPercent = 0.05;  // what rounds to nothing is left out of the line

// RankTotals as numbers that can be summed: each rank fills in its own, the others zeros.
constexpr std::size_t kNumbers = 4 + kTimeClasses + kByteChannels + 3;

// Doubles hold counts up to 2^53 exactly: bytes and nanoseconds of a run are below that.
void Pack(const RankTotals& totals, std::span<double> numbers) {
  std::size_t at = 0;
  const auto put = [&](double number) { numbers[at++] = number; };
  put(static_cast<double>(totals.steps));
  put(static_cast<double>(totals.samples));
  put(totals.flops);
  put(totals.peak_gflops);
  for (const std::uint64_t ns : totals.account.ns) put(static_cast<double>(ns));
  for (const std::uint64_t bytes : totals.account.bytes) put(static_cast<double>(bytes));
  put(static_cast<double>(totals.account.step_ns));
  put(static_cast<double>(totals.account.plan_ns));
  put(static_cast<double>(totals.account.peak_bytes));
}

// In the order of Pack.
RankTotals Unpack(std::span<const double> numbers) {
  RankTotals totals;
  std::size_t at = 0;
  const auto take = [&] { return static_cast<std::uint64_t>(numbers[at++]); };
  totals.steps = take();
  totals.samples = take();
  // Rates and operations are not converted to counts, because those of a run may be beyond 2^53.
  totals.flops = numbers[at++];
  totals.peak_gflops = numbers[at++];
  for (std::uint64_t& ns : totals.account.ns) ns = take();
  for (std::uint64_t& bytes : totals.account.bytes) bytes = take();
  totals.account.step_ns = take();
  totals.account.plan_ns = take();
  totals.account.peak_bytes = take();
  return totals;
}

// Before the first step both are 0.
double PercentOf(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

RankTotals SumOf(const std::vector<RankTotals>& ranks) {
  // Peaks are not added up; += keeps the higher one.
  RankTotals sum;
  for (const RankTotals& rank : ranks) {
    sum.flops += rank.flops;
    sum.peak_gflops += rank.peak_gflops;
    sum.account += rank.account;
  }
  return sum;
}

// A figure, or null where it is not known.
Json OrNull(bool known, double value) { return known ? Json(value) : Json(); }

// A row of the closing table, with a column for each class in `columns`.
std::string RankRow(std::size_t rank, const RankTotals& totals,
                    const std::vector<std::size_t>& columns) {
  const StepAccount& account = totals.account;
  // A rank that made no step has zeros everywhere.
  const double steps = totals.steps == 0 ? 1 : static_cast<double>(totals.steps);
  std::string row = fmt::format("  {:>4} {:>9.2f}", rank,
                                static_cast<double>(account.step_ns) * 1e-6 / steps);
  for (const std::size_t column : columns) {
    row += fmt::format(" {:>9.1f} %", PercentOf(account.ns[column], account.step_ns));
  }
  const std::uint64_t sent = account.at(ByteChannel::kActivation) +
                             account.at(ByteChannel::kGradient) +
                             account.at(ByteChannel::kReduction);
  const double utilisation = totals.Utilisation();
  // Bytes are per step and the peak is of the run: these are what is compared with the plan.
  row += fmt::format(" {:>8.3g} {:>6} {:>12.2f} {:>8.0f}\n", totals.TeraflopsPerSecond(),
                     utilisation < 0 ? "-" : fmt::format("{:.0f} %", 100 * utilisation),
                     static_cast<double>(sent) * 1e-6 / steps,
                     static_cast<double>(account.peak_bytes) * 1e-6);
  return row;
}

}  // namespace

double RankTotals::TeraflopsPerSecond() const {
  return account.step_ns == 0 ? 0 : flops / static_cast<double>(account.step_ns) * 1e-3;
}

// -1 where the machine's peak rate or the model's operations are not known.
double RankTotals::Utilisation() const {
  if (peak_gflops <= 0 || flops <= 0) return -1;
  return TeraflopsPerSecond() * 1e3 / peak_gflops;
}

// The share of the ranks' time in a plan that is neither forward, backward nor update.
double BubbleOf(const std::vector<RankTotals>& ranks) {
  const RankTotals sum = SumOf(ranks);
  // No step has been made yet.
  if (sum.account.plan_ns == 0) return 0;
  return 1.0 - static_cast<double>(sum.account.UsefulNs()) /
                   static_cast<double>(sum.account.plan_ns);
}

// The line below each progress line: classes that took no time, and rates that are not known, are
// left out.
std::string TimeLine(const std::vector<RankTotals>& ranks, double predicted_bubble) {
  const RankTotals sum = SumOf(ranks);
  std::string line;
  for (std::size_t at = 0; at < kTimeClasses; ++at) {
    const double percent = PercentOf(sum.account.ns[at], sum.account.step_ns);
    if (percent < kLeastPercent) continue;
    line += fmt::format("{}{} {:.1f} %", line.empty() ? "" : ", ",
                        Name(static_cast<TimeClass>(at)), percent);
  }
  if (sum.flops > 0) {
    // The ranks' steps run side by side: rates add up.
    double teraflops = 0;
    for (const RankTotals& rank : ranks) teraflops += rank.TeraflopsPerSecond();
    line += fmt::format("; {:.3g} TFLOP/s", teraflops);
    if (sum.peak_gflops > 0) {
      line += fmt::format(", MFU {:.0f} %", teraflops * 1e5 / sum.peak_gflops);
    }
  }
  // One rank has no others to wait for.
  if (ranks.size() > 1 && sum.account.plan_ns > 0) {
    line += fmt::format("; bubble {:.1f} %", 100 * BubbleOf(ranks));
    if (predicted_bubble > 0) line += fmt::format(" (predicted {:.1f} %)", 100 * predicted_bubble);
  }
  return line;
}

std::string RankTable(const std::vector<RankTotals>& ranks) {
  // Most runs use few of the classes: no messages without a pipeline, no swaps without a budget.
  std::vector<std::size_t> columns;  // the classes that some rank has spent time on
  for (std::size_t at = 0; at < kTimeClasses; ++at) {
    if (std::ranges::any_of(ranks, [at](const RankTotals& rank) {
          return PercentOf(rank.account.ns[at], rank.account.step_ns) >= kLeastPercent;
        })) {
      columns.push_back(at);
    }
  }
  std::string table = fmt::format("  {:>4} {:>9}", "rank", "ms/step");
  for (const std::size_t column : columns) {
    table += fmt::format(" {:>11}", Name(static_cast<TimeClass>(column)));
  }
  table += fmt::format(" {:>8} {:>6} {:>12} {:>8}\n", "TFLOP/s", "MFU", "MB sent/step", "peak MB");
  for (std::size_t rank = 0; rank < ranks.size() && rank < kTableRows; ++rank) {
    table += RankRow(rank, ranks[rank], columns);
  }
  if (ranks.size() > kTableRows) {
    table += fmt::format("  ... and {} further ranks\n", ranks.size() - kTableRows);
  }
  return table;
}

Result<StepMeter> StepMeter::Open(const MeterOptions& options, Communicator& communicator) {
  StepMeter meter(options, communicator);
  meter.run_.peak_gflops = options.peak_gflops;
  meter.window_.peak_gflops = options.peak_gflops;
  if (options.folder.empty()) return meter;
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed) return Error::FromErrno(failed.value(), "run.metrics_dir: " + options.folder);
  const std::filesystem::path path = std::filesystem::path(options.folder) /
                                     fmt::format("rank-{:05}.jsonl", communicator.rank());
  FOREBAY_ASSIGN(meter.file_, LineFile::Open(path.string(), options.append));
  return meter;
}

// The lines of steps that follow were made under this layout. Predictions stand in this line once,
// and not at every step.
Status StepMeter::BeginLayout(const Layout& layout, const StepForecast& forecast) {
  forecast_ = forecast;
  if (!file_.is_open()) return {};
  const std::uint32_t rank = communicator_->rank();
  Json planned = Json::object();
  for (std::size_t at = 0; at < kMemoryClasses; ++at) {
    planned[std::string(Name(static_cast<MemoryClass>(at)))] = forecast.planned_bytes[at];
  }
  return Line({{"event", "layout"},
               {"schema", "forebay-train-rank-1"},
               {"rank", rank},
               {"ranks", communicator_->size()},
               {"replicas", layout.replicas},
               {"stages", layout.stages},
               {"replica", layout.ReplicaOf(rank)},
               {"stage", layout.StageOf(rank)},
               {"flops_per_step", OrNull(forecast.flops > 0, forecast.flops)},
               {"peak_gflops", OrNull(options_.peak_gflops > 0, options_.peak_gflops)},
               {"predicted_step_ns", forecast.step_ns},
               {"predicted_bubble", OrNull(forecast.step_ns > 0, forecast.bubble)},
               {"planned_bytes", std::move(planned)}});
}

Status StepMeter::Step(const MeteredStep& step, const StepAccount& account) {
  // Both grow; the window is emptied when its line is printed.
  for (RankTotals* const totals : {&window_, &run_}) {
    ++totals->steps;
    totals->samples += step.samples;
    totals->flops += forecast_.flops;
    totals->account += account;
  }
  if (!file_.is_open()) return {};
  const RankTotals own{.steps = 1,
                       .samples = step.samples,
                       .flops = forecast_.flops,
                       .peak_gflops = options_.peak_gflops,
                       .account = account};
  // Keys of this line are read by scripts and by forebay-train report: they do not change.
  Json line = {{"event", "step"},
               {"global_step", step.global_step},
               {"epoch", step.epoch},
               {"step", step.step},
               {"step_ns", account.step_ns},
               {"plan_ns", account.plan_ns}};
  for (std::size_t at = 0; at < kTimeClasses; ++at) {
    line[fmt::format("{}_ns", Name(static_cast<TimeClass>(at)))] = account.ns[at];
  }
  for (std::size_t at = 0; at < kByteChannels; ++at) {
    line[fmt::format("{}_bytes", Name(static_cast<ByteChannel>(at)))] = account.bytes[at];
  }
  const double seconds = static_cast<double>(account.step_ns) * 1e-9;
  line["peak_bytes"] = account.peak_bytes;
  line["samples"] = step.samples;
  line["samples_per_s"] =
      OrNull(seconds > 0, seconds > 0 ? static_cast<double>(step.samples) / seconds : 0);
  line["tflops"] = OrNull(own.flops > 0, own.TeraflopsPerSecond());
  line["mfu"] = OrNull(own.Utilisation() >= 0, own.Utilisation());
  // The time of the steps themselves serves as the clock.
  unflushed_ns_ += account.step_ns;
  return Line(line);
}

Status StepMeter::Line(const nlohmann::ordered_json& line) {
  file_.Add(line.dump() + "\n");
  return unflushed_ns_ >= kFlushNs ? Flush() : Status();
}

Status StepMeter::Flush() {
  unflushed_ns_ = 0;
  return file_.Flush();
}

Result<std::vector<RankTotals>> StepMeter::Gather(const RankTotals& own) {
  std::vector<double> numbers(kNumbers * communicator_->size());
  Pack(own, std::span(numbers).subspan(kNumbers * communicator_->rank(), kNumbers));
  // A sum in which all but one addend is 0 is exact, in whatever order it is formed.
  FOREBAY_TRY(communicator_->AllReduceSum(std::span<double>(numbers)));
  std::vector<RankTotals> ranks;
  for (std::uint32_t rank = 0; rank < communicator_->size(); ++rank) {
    ranks.push_back(Unpack(std::span<const double>(numbers).subspan(kNumbers * rank, kNumbers)));
  }
  return ranks;
}

// Collective. All ranks get the line, and rank 0 prints it.
Result<std::string> StepMeter::Window() {
  FOREBAY_ASSIGN(const std::vector<RankTotals> ranks, Gather(window_));
  // Emptied on all ranks at once, because all are in this call.
  window_ = {};
  window_.peak_gflops = options_.peak_gflops;
  return TimeLine(ranks, forecast_.bubble);
}

Result<std::vector<RankTotals>> StepMeter::Finish() { return Gather(run_); }

}  // namespace forebay::train
