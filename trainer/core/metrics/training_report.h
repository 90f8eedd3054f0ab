// TrainingReport: the figures of one training run, and the forms in which they are printed: loss
// curve as JSON lines, closing table, summary file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/loop/metric.h"
#include "trainer/core/metrics/line_file.h"
#include "trainer/core/metrics/step_meter.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

struct EvaluationFigures {
  std::uint32_t epoch = 0;
  std::uint64_t samples = 0;
  double score = 0;  // of the run's metric
  double loss = 0;
  double seconds = 0;
};

struct TrainingReport {
  bool completed = false;  // false: stopped by a signal
  std::uint32_t ranks = 1;
  std::uint32_t threads = 1;
  Layout layout;                        // the last one
  std::uint32_t switches = 0;           // of layouts
  std::uint64_t weights_digest = 0;     // at the end: equal weights, equal digests
  std::string layout_dependence;        // keys that make the weights depend on the layout
  std::uint64_t skipped_steps = 0;      // left out, because a gradient was not finite
  std::string blas;
  double blas_gflops = 0;
  std::uint64_t first_global_step = 0;  // not 0: resumed
  std::uint64_t steps = 0;              // of this run
  std::uint64_t samples = 0;            // trained on in this run, over all ranks
  double last_loss = 0;
  std::uint64_t loop_ns = 0;            // the whole loop, evaluations and checkpoints included
  std::uint64_t train_ns = 0;           // of it, training steps with their waits
  std::uint64_t wait_ns = 0;            // of it, blocked in Feed::Next
  std::uint64_t first_wait_ns = 0;      // of the waits, the one for the first batch
  std::uint64_t first_batch_ns = 0;     // opening the feed to the first batch in hand
  Metric metric;                        // of the evaluations
  std::vector<EvaluationFigures> evaluations;
  bool target_reached = false;          // evaluation.target, before the last epoch or in it
  std::string checkpoint;               // the last one written; may be empty
  std::uint64_t output_failures = 0;    // of metrics and the trace, over all ranks
  std::uint64_t checkpoint_ns = 0;      // stood still: copies, waits for the one before
  std::vector<RankTotals> rank_totals;  // by rank

  // The time blocked in Feed::Next as a percentage of the loop's time.
  double StallPercent() const;
  // The same without the wait for the first batch, which depends on staging and connecting.
  double WarmStallPercent() const;
  double SamplesPerSecond() const;  // over train_ns
};

// The closing table, which ends in a newline. It shows only what the trainer itself knows; bytes
// and hits are figures of the daemon (`forebay status`).
std::string ClosingTable(const TrainingReport& report);

// The summary as a JSON object (schema forebay-train-summary-1).
std::string SummaryJson(const TrainingReport& report);
// Where it cannot be written as a whole, no part of it stays.
Status WriteSummary(const std::string& path, const TrainingReport& report);

struct StepFigures {
  std::uint64_t global_step = 0;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  double loss = 0;  // mean over the global batch
  double learning_rate = 0;
};

// Appends JSON lines to a file, each complete when the call returns, or missing where it failed.
// Doubles are written so that they read back bit for bit. Not thread-safe.
//
// The same scalars go to a table for programs that read CSV, a row for each step and each
// evaluation, whose columns the other leaves empty. After a resumption steps that are made again
// have two rows, of which the last counts.
class MetricsFile {
 public:
  // An empty path: no such file.
  static Result<MetricsFile> Open(const std::string& path, bool append,
                                  const std::string& table_path = "");

  Status Step(const StepFigures& figures);
  Status Evaluation(const Metric& metric, const EvaluationFigures& figures);
  Status Resumed(std::uint64_t global_step);

 private:
  Status Write(const std::string& line, const std::string& row);

  LineFile file_;
  LineFile table_;
  bool begins_table_ = false;  // its header is still to be written
  std::uint64_t steps_ = 0;    // that had been made when an evaluation is written
};

}  // namespace forebay::train
