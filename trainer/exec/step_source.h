// StepSource: a rank's share of a training step, cut into canonical micro-batches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/feed/feed.h"
#include "trainer/exec/device/device_feed.h"
#include "trainer/exec/model_task.h"
#include "trainer/exec/stage/stage_step.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Returns the samples of every micro-batch of a training step in which each replica has `share`
// samples: full micro-batches, then a short one. kFailedPrecondition if one would be empty, or if
// they do not hold the share.
Result<std::vector<std::uint32_t>> TrainingCounts(const Layout& layout,
                                                  std::uint32_t micro_batches,
                                                  std::uint32_t micro_batch,
                                                  std::uint32_t share);

// Returns the same for an evaluation step of `samples` samples over all replicas, as evenly as
// possible; some micro-batches may be empty. There are enough of them to fill the pipeline, and
// none is larger than `micro_batch`, so that a forward pass takes no more memory than in training.
std::vector<std::uint32_t> EvaluationCounts(const Layout& layout, std::uint32_t micro_batch,
                                            std::uint64_t samples);

// What a rank takes of a step. It is the same for all steps with the same numbers of samples.
struct StepCut {
  StepCut() = default;
  // `counts`: samples, of all micro-batches of a step.
  StepCut(const Layout& layout, std::uint32_t rank, std::vector<std::uint32_t> counts);

  std::uint32_t samples = 0;          // of this replica
  std::uint32_t first = 0;            // micro-batch of this replica
  bool takes_input = false;           // at the first stage of a pipeline
  bool takes_target = false;          // at the last one
  std::vector<std::int64_t> offsets;  // samples, by micro-batch from `first` on, and the end
  std::vector<std::uint32_t> counts;
};

class StepSource final : public MicroBatchSource {
 public:
  // Before the step, on any thread: sets batch.prepared to tensors over the batch's own memory,
  // where they lie there as they are. For a GPU, which `feed` is the way to: to the batch's tensors
  // there, all of them. Lets go of the memory that nothing needs but what was prepared. What cannot
  // be made is left to Make, and so is its error. May throw.
  static void Prepare(const ModelTask& task, DeviceFeed* feed, FeedBatch& batch);

  // Makes tensors of what `batch` has, those that were not prepared, and lets go of its memory.
  // Where it `borrows`, tensors of floats that need no conversion lie in that memory, which is
  // read-only and goes back with the last of them; otherwise all are copies, whatever was prepared.
  // With a `feed` they lie on its GPU. `cut` outlives the source. kDataLoss where the batch has
  // another number of samples than it says. May throw.
  static Result<StepSource> Make(const ModelTask& task, const StepCut& cut, DeviceFeed* feed,
                                 FeedBatch& batch, bool borrows);

  Result<torch::Tensor> Input(std::uint32_t micro_batch) override;
  Result<torch::Tensor> Target(std::uint32_t micro_batch) override;
  std::array<std::uint64_t, 3> Place() const override { return place_; }

  // Call it after the step. kFailedPrecondition if the model or the loss has written to the
  // tensors.
  Status CheckUnwritten() const;

 private:
  struct Tensors;
  explicit StepSource(const StepCut& cut) : cut_(&cut) {}
  static std::shared_ptr<Tensors> OnGpu(const ModelTask& task, DeviceFeed& feed,
                                        const FeedBatch& batch);
  Result<torch::Tensor> Piece(const torch::Tensor& whole, std::uint32_t micro_batch) const;

  const StepCut* cut_;
  std::array<std::uint64_t, 3> place_ = {};
  std::shared_ptr<Tensors> tensors_;
};

}  // namespace forebay::train
