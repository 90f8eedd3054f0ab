// Reads the JSON lines that a run left. The run may have been killed at any time and resumed from
// an earlier step: a last line that is cut off is ignored, and a "resumed" event removes the steps
// behind it, because they were trained again. Numbers that are missing become NaN, which makes gaps
// in plots.
#include "trainer/core/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "trainer/core/metrics/step_meter.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Numbers of a record; what is null or missing counts as `otherwise`.
double NumberOf(const Json& record, std::string_view key, double otherwise) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>() : otherwise;
}

// 0 where it is missing: counts are added up, so that nothing is added.
std::uint64_t CountOf(const Json& record, std::string_view key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

// The kind of a record. Kinds that are not known are passed over, because a later version may have
// more.
std::string EventOf(const Json& record) {
  const auto found = record.find("event");
  return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The folder may hold anything: opening a pipe would wait for a writer, and a device has no size.
Result<std::ifstream> OpenRegular(const fs::path& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (failed) return Error::FromErrno(failed.value(), path.string());
  if (!fs::is_regular_file(status)) {
    return Error(ErrorCode::kInvalidArgument, path.string() + ": not a regular file");
  }
  const std::uintmax_t bytes = fs::file_size(path, failed);
  if (failed) return Error::FromErrno(failed.value(), path.string());
  // All records are held in memory, so the file's size bounds it.
  if (bytes > kMetricsFileBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{}: larger than {} bytes (kMetricsFileBytesMax)", path.string(),
                             kMetricsFileBytesMax));
  }
  std::ifstream file(path);
  if (!file) return Error::FromErrno(errno, path.string());
  return file;
}

// Calls `take` with every record of a file of JSON lines.
Status ForEachRecord(const fs::path& path, const std::function<void(const Json&)>& take) {
  FOREBAY_ASSIGN(std::ifstream file, OpenRegular(path));
  std::uint64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const bool torn = file.eof();  // no newline: the run ended while it was written
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A last line without its newline may be whole all the same, and is taken then.
    if (record.is_object()) {
      take(record);
    } else if (!torn) {
      return Error(ErrorCode::kDataLoss,
                   fmt::format("{} line {}: not a JSON object", path.string(), number));
    }
  }
  return {};
}

// A record of the loss curve. Later ones replace earlier ones of the same step.
void TakeRunRecord(const Json& record, RunRecord& run) {
  const std::string event = EventOf(record);
  if (event == "step") {
    run.steps[CountOf(record, "global_step")] = {
        .loss = NumberOf(record, "loss", kNan),
        .learning_rate = NumberOf(record, "learning_rate", kNan)};
  } else if (event == "evaluation") {
    const auto named = record.find("metric");
    const bool has_name = named != record.end() && named->is_string();
    // Before there were other metrics, the record did not name it.
    const std::string metric = has_name ? named->get<std::string>() : "accuracy";
    run.evaluations.push_back({.global_step = run.steps.empty() ? 0 : run.steps.rbegin()->first + 1,
                               .metric = metric,
                               .score = NumberOf(record, metric.c_str(), kNan),
                               .loss = NumberOf(record, "loss", kNan)});
  } else if (event == "resumed") {
    // What had been trained beyond the checkpoint is trained again.
    const std::uint64_t from = CountOf(record, "global_step");
    run.steps.erase(run.steps.lower_bound(from), run.steps.end());
    std::erase_if(run.evaluations, [from](const RecordedEvaluation& evaluation) {
      return evaluation.global_step > from;
    });
  }
}

// A rank's place and what was predicted for it. After a switch the last layout is shown.
void TakeLayout(const Json& record, RecordedRank& rank) {
  rank.rank = static_cast<std::uint32_t>(CountOf(record, "rank"));
  rank.replicas = static_cast<std::uint32_t>(CountOf(record, "replicas"));
  rank.stages = static_cast<std::uint32_t>(CountOf(record, "stages"));
  rank.predicted_step_ns = NumberOf(record, "predicted_step_ns", 0);
  rank.predicted_bubble = NumberOf(record, "predicted_bubble", 0);
  const auto planned = record.find("planned_bytes");
  if (planned == record.end() || !planned->is_object()) return;
  for (std::size_t at = 0; at < kMemoryClasses; ++at) {
    rank.planned_bytes[at] = CountOf(*planned, Name(static_cast<MemoryClass>(at)));
  }
}

// The names of the keys are those that StepMeter writes.
void TakeRankStep(const Json& record, RecordedRank& rank) {
  StepAccount account;
  for (std::size_t at = 0; at < kTimeClasses; ++at) {
    account.ns[at] =
        CountOf(record, fmt::format("{}_ns", Name(static_cast<TimeClass>(at))));
  }
  for (std::size_t at = 0; at < kByteChannels; ++at) {
    account.bytes[at] =
        CountOf(record, fmt::format("{}_bytes", Name(static_cast<ByteChannel>(at))));
  }
  account.step_ns = CountOf(record, "step_ns");
  account.plan_ns = CountOf(record, "plan_ns");
  account.peak_bytes = CountOf(record, "peak_bytes");
  const std::uint64_t step = CountOf(record, "global_step");
  // A step that was trained again after a resume replaces the earlier one.
  rank.steps[step] = account;
  rank.samples[step] = CountOf(record, "samples");
  const double utilisation = NumberOf(record, "mfu", -1);
  if (utilisation >= 0) rank.utilisation[step] = utilisation;
}

// Single figures; what is nested is left out.
void TakeSummary(const Json& record, RunRecord& run) {
  for (const auto& [key, value] : record.items()) {
    if (value.is_structured() || value.is_null()) continue;
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_number_float()) text = fmt::format("{:.6g}", value.get<double>());
    run.summary.emplace_back(key, std::move(text));
  }
}

// A run that was killed has no summary.
Status ReadSummary(const fs::path& path, RunRecord& run) {
  Result<std::ifstream> file = OpenRegular(path);
  if (!file && file.error().code() == ErrorCode::kNotFound) return {};
  FOREBAY_TRY(file);
  const Json summary = Json::parse(*file, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) {
    return Error(ErrorCode::kDataLoss, path.string() + ": not a JSON object");
  }
  TakeSummary(summary, run);
  return {};
}

// The folder may hold other files: checkpoints, traces, the report itself.
bool IsRankFile(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("rank-") && name.ends_with(".jsonl");
}

}  // namespace

Result<RunRecord> ReadRun(const fs::path& folder) {
  std::vector<fs::path> rank_files;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (IsRankFile(at->path())) rank_files.push_back(at->path());
  }
  if (failed) return Error::FromErrno(failed.value(), folder.string());
  // Names have leading zeros, so that this is the order of the ranks.
  std::ranges::sort(rank_files);
  RunRecord run;
  const fs::path curve = folder / kLossCurveFile;
  // Either kind of file is enough for a report of what it holds.
  const bool has_curve = fs::exists(curve);
  if (!has_curve && rank_files.empty()) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("{}: has neither {} nor rank-*.jsonl; train with --metrics-dir",
                             folder.string(), kLossCurveFile));
  }
  if (has_curve) {
    FOREBAY_TRY(ForEachRecord(curve, [&run](const Json& record) { TakeRunRecord(record, run); }));
  }
  for (const fs::path& path : rank_files) {
    RecordedRank rank;
    FOREBAY_TRY(ForEachRecord(path, [&rank](const Json& record) {
      const std::string event = EventOf(record);
      if (event == "layout") TakeLayout(record, rank);
      if (event == "step") TakeRankStep(record, rank);
    }));
    run.ranks.push_back(std::move(rank));
  }
  FOREBAY_TRY(ReadSummary(folder / kSummaryFile, run));
  return run;
}

}  // namespace forebay::train
