// Engine: the model, its optimiser and the arithmetic of one step. trainer/exec implements it
// with LibTorch; the training loop knows nothing of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint.h"
#include "trainer/core/feed.h"

namespace forebay::train {

// Sums over the samples of one rank's batch.
struct BatchOutcome {
  double loss_sum = 0;
  std::uint64_t correct = 0;
  std::uint64_t samples = 0;
};

// Not thread-safe. TrainStep is collective: every rank calls it for the same step.
class Engine {
 public:
  virtual ~Engine() = default;

  // Forward, backward, gradient averaged over the ranks' samples, update. Releases batch.hold
  // once the bytes are converted. Ranks hold equally many samples.
  virtual Result<BatchOutcome> TrainStep(FeedBatch& batch, double learning_rate) = 0;

  // Forward only. An empty batch is allowed.
  virtual Result<BatchOutcome> EvaluateStep(FeedBatch& batch) = 0;

  // Fills in the model, its weights and the optimiser's state; nothing else.
  virtual Status Save(Checkpoint& checkpoint) const = 0;
  // kFailedPrecondition where the checkpoint is of another model, naming the difference.
  virtual Status Load(const Checkpoint& checkpoint) = 0;
};

}  // namespace forebay::train
