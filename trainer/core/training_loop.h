// TrainingLoop: feed -> engine -> figures, with evaluations, checkpoints and orderly stops.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/checkpoint_folder.h"
#include "trainer/core/engine.h"
#include "trainer/core/feed.h"
#include "trainer/core/layout_feeds.h"
#include "trainer/core/layout_plan.h"
#include "trainer/core/learning_rate.h"
#include "trainer/core/step_meter.h"
#include "trainer/core/training_report.h"

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
  std::uint64_t checkpoint_every_steps = 0;   // 0: at the end and when stopped
  std::uint64_t log_every_steps = 100;
  bool saves = false;            // rank 0 has a folder of checkpoints
  bool skips_not_finite = false;  // such steps are left out, or end the run
};

// What the loop is wired to. References outlive the loop.
struct LoopParts {
  Engine& engine;
  Communicator& communicator;
  MetricsFile& metrics;                        // of rank 0; of other ranks one without a file
  StepMeter& meter;
  LayoutFeeds& feeds;                          // open at the run's first position
  CheckpointFolder* checkpoints = nullptr;     // rank 0's; nullptr: none are written
  std::function<bool()> stop_requested;        // asked after every step
  std::function<std::uint64_t()> now_ns;       // monotonic
  std::function<void(const std::string&)> print;  // progress lines, without a newline
  std::uint64_t opening_ns = 0;                // when opening the feeds began
};

// How many evaluations remain when training stands at the start of, or within, epoch `epoch`.
std::uint32_t EvaluationsLeft(const LoopOptions& options, std::uint32_t epoch);

// Every rank runs its own loop over its own feeds; all calls are collective. Layouts change as
// LoopOptions::layouts says: the engine moves its weights, and the feeds are opened anew at the
// position token. A stop signal on any rank
// stops all ranks after the same step. Not thread-safe.
class TrainingLoop {
 public:
  TrainingLoop(const LoopOptions& options, const LoopParts& parts);

  // Puts model, optimiser and position where `checkpoint` stands. kFailedPrecondition where it
  // belongs to another run (model, seed, global batch), naming both values.
  Status Resume(const Checkpoint& checkpoint);

  // Trains what is left, then ends the feeds. Errors are final. A periodic checkpoint that
  // cannot be written is reported through `print` and training goes on; one at the end or on a
  // stop signal is an error.
  Result<TrainingReport> Run();

 private:
  struct StepEnd {
    bool stop = false;
    bool epoch_done = false;
  };
  struct ProgressWindow {
    std::uint64_t steps = 0;
    std::uint64_t wait_ns = 0;
    std::uint64_t step_ns = 0;
    double loss = 0;
  };

  bool leads() const { return parts_.communicator.rank() == 0; }
  RunPosition position() const { return {epoch_, step_, global_step_}; }
  // What this rank is at from now on, for the watchdog.
  void NoteStage(std::string context, std::string what);
  Status Relayout();
  Result<StepEnd> Step();
  Status CheckOutcome(const BatchOutcome& outcome, double loss);
  Status EndEpoch();
  Status Meter(const StepFigures& figures, std::uint64_t samples, std::uint64_t wait_ns,
               std::uint64_t step_ns);
  Status Progress(const StepFigures& figures, std::uint64_t wait_ns, std::uint64_t step_ns);
  bool EvaluationDue(std::uint32_t epoch) const;
  Status Evaluate(std::uint32_t epoch);
  Status Save();
  Status WriteCheckpoint(const Checkpoint& checkpoint);

  LoopOptions options_;
  LoopParts parts_;
  TrainingReport report_;
  ProgressWindow window_;
  std::uint64_t steps_per_epoch_ = 0;
  std::uint64_t global_step_ = 0;
  std::uint32_t epoch_ = 0;   // of the next step
  std::uint64_t step_ = 0;    // the next step within the epoch
  bool evaluation_pending_ = false;
  std::vector<std::byte> token_;
};

}  // namespace forebay::train
