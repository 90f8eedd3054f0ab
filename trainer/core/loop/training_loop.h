// TrainingLoop: trains step by step, with evaluations, checkpoints, switches of layouts and orderly
// stops.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/checkpoint/checkpoint_writer.h"
#include "trainer/core/config/layout_plan.h"
#include "trainer/core/feed/feed.h"
#include "trainer/core/feed/layout_feeds.h"
#include "trainer/core/loop/engine.h"
#include "trainer/core/loop/evaluation_sums.h"
#include "trainer/core/loop/learning_rate.h"
#include "trainer/core/metrics/side_output.h"
#include "trainer/core/metrics/step_meter.h"
#include "trainer/core/metrics/training_report.h"

namespace forebay::train {

struct LoopOptions {
  std::uint32_t epochs = 1;
  std::uint32_t global_batch = 1;
  std::uint64_t seed = 0;
  // Its total_steps, and from decay_epochs its decay_steps, are filled in by the loop.
  LearningRateSchedule learning_rate;
  std::vector<std::uint64_t> decay_epochs;
  LayoutPlan layouts;
  std::uint32_t evaluate_every_epochs = 1;    // 0: never; the last epoch counts always
  std::optional<double> target;               // of the metric: an evaluation that reaches it ends
  std::uint64_t checkpoint_every_steps = 0;   // 0: at the end and when stopped
  std::uint64_t checkpoint_every_ns = 0;      // likewise; both may be given
  std::uint64_t log_every_steps = 100;
  bool saves = false;            // there is a place for checkpoints
  bool keeps_best = false;       // and one for the best one
  // Stored in checkpoints.
  std::string run;
  std::optional<CheckpointOrigin> resumed_from;
  std::string configuration;
  bool skips_not_finite = false;  // such steps are left out, or end the run
  bool replicas_decide_sums = false;  // so that another layout ends in other weights
};

// What the loop is wired to. References outlive the loop.
struct LoopParts {
  Engine& engine;
  Communicator& communicator;
  MetricsFile& metrics;                        // of rank 0; of other ranks one without a file
  StepMeter& meter;
  SideOutput& side_output;                     // of this rank: where these two fail
  LayoutFeeds& feeds;                          // open at the run's first position
  CheckpointPlace checkpoints;
  CheckpointPlace best;
  std::function<bool()> stop_requested;        // asked after every step
  std::function<std::uint64_t()> now_ns;       // monotonic
  std::function<void(const std::string&)> print;  // progress lines, without a newline
  std::uint64_t opening_ns = 0;                // when opening the feeds began
};

// How many evaluations remain for a run that stands at the beginning of epoch `epoch` or within it.
std::uint32_t EvaluationsLeft(const LoopOptions& options, std::uint32_t epoch);

// Every rank runs its own loop over its own feeds, and all calls are collective. Layouts change as
// LoopOptions::layouts says: the engine moves its weights, and the feeds are opened again at the
// position token. A stop signal on any rank stops all ranks after the same step. Not thread-safe.
class TrainingLoop {
 public:
  TrainingLoop(const LoopOptions& options, const LoopParts& parts);

  // Sets model, optimiser and position to those of `checkpoint`. kFailedPrecondition if it belongs
  // to another run (model, seed, global batch); the message names both values.
  Status Resume(const CheckpointReader& checkpoint);

  // Trains what is left, then ends the feeds. Errors are final; if all ranks have the same error, a
  // checkpoint that is being written is finished first.
  //
  // Checkpoints are written while training goes on, one at a time. One that cannot be written is
  // reported through `print`, and training goes on. If it is the last one, at the end or after a
  // stop signal, that is an error. A state that is not finite is never written, and is an error as
  // well.
  Result<TrainingReport> Run();

 private:
  struct StepEnd {
    bool epoch_done = false;
    bool checkpoint_due = false;  // by the clock
  };
  // What all ranks agree on, once per step.
  struct Agreement {
    bool stop = false;
    bool checkpoint_due = false;
  };
  struct ProgressWindow {
    std::uint64_t steps = 0;
    std::uint64_t wait_ns = 0;
    std::uint64_t step_ns = 0;
    double loss = 0;
  };

  Result<TrainingReport> RunToEnd();
  Status SumUpRanks();
  bool leads() const { return parts_.communicator.rank() == 0; }
  RunPosition position() const { return {epoch_, step_, global_step_}; }
  // What this rank is at from now on, for the watchdog.
  void NoteStage(std::string context, std::string what);
  Status Relayout();
  Result<StepEnd> Step();
  Result<Agreement> Agree(bool checkpoint_due);
  Status CheckOutcome(const BatchOutcome& outcome, double loss);
  Status EndEpoch();
  void Meter(const StepFigures& figures, std::uint64_t samples, std::uint64_t wait_ns,
             std::uint64_t step_ns);
  Status Progress(const StepFigures& figures, std::uint64_t wait_ns, std::uint64_t step_ns);
  bool EvaluationDue(std::uint32_t epoch) const;
  Status Evaluate(std::uint32_t epoch);
  Result<bool> SumUp(EvaluationSums& sums);
  Status MarkBest(const EvaluationFigures& figures);
  bool TargetReached() const;
  Status Save(const CheckpointPlace& place);
  Status SaveEngine(const CheckpointPlace& place, Checkpoint& checkpoint);
  Result<std::uint64_t> Digest();
  Status SaveLast();
  Status DrainCheckpoints();
  void Written(const CheckpointWriter::Outcome& outcome);

  LoopOptions options_;
  LoopParts parts_;
  TrainingReport report_;
  ProgressWindow window_;
  std::uint64_t steps_per_epoch_ = 0;
  std::uint64_t global_step_ = 0;
  std::uint32_t epoch_ = 0;   // of the next step
  std::uint64_t step_ = 0;    // the next step within the epoch
  bool evaluation_pending_ = false;
  bool made_up_ = false;  // the evaluation that was pending
  std::uint64_t skipped_in_a_row_ = 0;
  bool ends_alike_ = false;  // every rank has the error that ends the run
  bool stopped_ = false;  // by a signal or the wall-time limit
  std::optional<PositionToken> token_;  // of the next step; none on ranks without a feed
  std::optional<BestMark> best_;
  CheckpointWriter writer_;
  std::optional<std::uint64_t> saved_step_;  // of the last one begun that did not fail
  std::optional<Error> save_error_;          // why the last one failed
  std::uint64_t saved_ns_ = 0;               // when the last one began, or the run
};

}  // namespace forebay::train
