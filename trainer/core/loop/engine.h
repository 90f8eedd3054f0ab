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

// Sums over the samples of a step, over all ranks.
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

  // How the model is laid out over the ranks.
  virtual Layout layout() const { return {}; }
  // What an evaluation measures: its figure is BatchOutcome::score_sum / samples.
  virtual Metric metric() const { return {}; }
  // Changes the layout, between two steps. kInvalidArgument for a layout that is not in the run's
  // plan.
  virtual Status Switch(const Layout& layout) = 0;

  // Forward pass, backward pass, and an update with the gradient averaged over the step's samples.
  // `batch` holds what this rank's place in the layout asks for. Its sample_count is set in any
  // case, and is the same on every rank. Releases batch.hold once the bytes are converted.
  virtual Result<BatchOutcome> TrainStep(FeedBatch& batch, double learning_rate) = 0;

  // Converts what can be converted of a batch that a later step will use, into batch.prepared. Not
  // collective; called on another thread, beside any other call.
  virtual void Prepare(FeedBatch&) const {}

  // A forward pass. An empty batch is allowed.
  virtual Result<BatchOutcome> EvaluateStep(FeedBatch& batch) = 0;

  // Fills in the model, the optimiser, the numeric identity, and copies of the tensors that this
  // rank writes; nothing else. Each tensor is written by one rank. All together are the same under
  // every layout.
  virtual Status Save(Checkpoint& checkpoint) = 0;
  // Reads the tensors that this rank holds. kFailedPrecondition, naming the difference, if the
  // checkpoint belongs to another model or identity. kDataLoss if it cannot be read; the engine
  // cannot be used after that.
  virtual Status Load(const CheckpointReader& checkpoint) = 0;

  // A checksum of all weights and running statistics. kDataLoss if replicas differ.
  virtual Result<std::uint64_t> Digest() = 0;

  // Where the time of this rank's last training step went, without the wait for data, which the
  // loop measures. All zero means that the whole step was computation. Not collective.
  virtual StepAccount last_step() const { return {}; }
  // What is expected of this rank's steps under the present layout.
  virtual StepForecast forecast() const { return {}; }
  // Call it after the last step: writes what is due at the end of a run. Errors concern files that
  // nothing depends on.
  virtual Status Finish() { return {}; }
};

}  // namespace forebay::train
