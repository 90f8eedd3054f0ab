// RunRecord: what a run left in its folder of metrics (run.metrics_dir).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/metrics/step_account.h"
#include "trainer/schedule/memory/plan_peaks.h"

namespace forebay::train {

struct RecordedStep {
  double loss = 0;  // NaN: it was not finite
  double learning_rate = 0;
};

struct RecordedEvaluation {
  std::uint64_t global_step = 0;  // steps that had been made
  std::string metric = {};  // what the score is of
  double score = 0;
  double loss = 0;
};

// One rank's file.
struct RecordedRank {
  std::uint32_t rank = 0;
  std::map<std::uint64_t, StepAccount> steps = {};  // by global step
  std::map<std::uint64_t, std::uint64_t> samples = {};
  std::map<std::uint64_t, double> utilisation = {};  // where it is known
  MemoryPeaks planned_bytes = {};  // of the last layout, as what follows
  std::uint32_t replicas = 1;
  std::uint32_t stages = 1;
  double predicted_step_ns = 0;
  double predicted_bubble = 0;
};

struct RunRecord {
  std::map<std::uint64_t, RecordedStep> steps;  // by global step
  std::vector<RecordedEvaluation> evaluations;
  std::vector<RecordedRank> ranks;              // ascending
  std::vector<std::pair<std::string, std::string>> summary;  // figures of summary.json, as text
};

// If a step was made again after a resume, the last time counts. A last line that is cut off is
// left out; any other line that is not a record is kDataLoss, with file and line. kNotFound if the
// folder has neither a loss curve nor a file of a rank; kResourceExhausted for files larger than
// kMetricsFileBytesMax; kInvalidArgument if one of them is not a regular file.
Result<RunRecord> ReadRun(const std::filesystem::path& folder);

inline constexpr std::uint64_t kMetricsFileBytesMax = 4ULL << 30;

}  // namespace forebay::train
