// Engine: the model, its optimiser and the arithmetic of one step. trainer/exec implements it
// with LibTorch; the training loop knows nothing of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint/checkpoint.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/feed/feed.h"
#include "trainer/core/loop/metric.h"
#include "trainer/core/metrics/step_account.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Sums over the samples of a step.
struct BatchOutcome {
  double loss_sum = 0;
  double score_sum = 0;  // evaluations only: the sum of Engine::metric() over the samples
  std::uint64_t samples = 0;
  bool skipped = false;  // nothing was updated: a gradient is not finite
  // Micro-batches of the step whose loss is not finite.
  std::vector<std::uint32_t> not_finite = {};
};

// Not thread-safe. Every call but the getters and Load is collective: all ranks make it for the
// same step, and outcomes are over all ranks, the same on each.
class Engine {
 public:
  virtual ~Engine() = default;

  // How the model lies over the ranks.
  virtual Layout layout() const { return {}; }
  // What an evaluation measures: its figure is BatchOutcome::score_sum / samples.
  virtual Metric metric() const { return {}; }
  // Changes the layout, between steps. kInvalidArgument for one that the run's plan does not have.
  virtual Status Switch(const Layout& layout) = 0;

  // Forward, backward, update with the gradient averaged over the step's samples. `batch` has what
  // this rank's place in the layout asks for; its sample_count is set in any case, and the same on
  // every rank. Releases batch.hold once the bytes are converted.
  virtual Result<BatchOutcome> TrainStep(FeedBatch& batch, double learning_rate) = 0;

  // Makes ready what can be of a batch that a later step will have, into batch.prepared. Not
  // collective; on another thread, beside any other call.
  virtual void Prepare(FeedBatch&) const {}

  // Forward only. An empty batch is allowed.
  virtual Result<BatchOutcome> EvaluateStep(FeedBatch& batch) = 0;

  // Fills in the model, the optimiser, the numeric identity, and copies of the tensors that this
  // rank writes, each of which is one rank's; nothing else. Together the same under every layout.
  virtual Status Save(Checkpoint& checkpoint) = 0;
  // Reads what lies on this rank. kFailedPrecondition where the checkpoint is of another model or
  // identity, naming the difference; kDataLoss where it cannot be read, which leaves the engine
  // useless.
  virtual Status Load(const CheckpointReader& checkpoint) = 0;

  // Of all weights and running statistics. kDataLoss where replicas differ.
  virtual Result<std::uint64_t> Digest() = 0;

  // Of this rank's last training step, but for what the loop does: waiting for data. All zero: it
  // computed all the time. Not collective.
  virtual StepAccount last_step() const { return {}; }
  // Of this rank's steps under the present layout.
  virtual StepForecast forecast() const { return {}; }
  // After the last step: what is written at the end of a run. Errors are of files that nothing
  // depends on.
  virtual Status Finish() { return {}; }
};

}  // namespace forebay::train
