// StageCompute: forward and backward passes of the parts of one pipeline stage.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/exec/model.h"
#include "trainer/exec/stage/held_part.h"
#include "trainer/exec/stage/stage_gradient.h"
#include "trainer/exec/stage/stage_messages.h"
#include "trainer/exec/stage/stage_statistics.h"
#include "trainer/exec/stage/stage_step.h"
#include "trainer/exec/swap/saved_tensors.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// The parts of a stage: those of the model from `begin` on.
struct StageParts {
  const Model& model;
  std::uint32_t begin = 0;
  std::vector<HeldPart*> held;

  std::uint32_t end() const { return begin + static_cast<std::uint32_t>(held.size()); }
  bool IsLastOfModel(std::uint32_t part) const { return part + 1 == model.parts.size(); }
};

// A part's graph between its forward and its backward pass.
struct PartGraph {
  std::vector<torch::Tensor> leaves;  // its inputs
  torch::Tensor root;                 // its output; of the model's last part, the loss
  SavedTensors saved;                 // by autograd; recorded only where the plan swaps
};

// What a stage keeps of one micro-batch from forward to backward, by part of the model.
struct MicroBatchState {
  torch::Tensor input;
  torch::Tensor target;
  std::map<std::uint32_t, torch::Tensor> values;  // outputs that were computed here
  std::map<std::uint32_t, PartGraph> graphs;
  std::map<std::uint32_t, torch::Tensor> sums;  // gradients of outputs, while they are summed
};

// Every part runs in a graph of its own, and gradients of a tensor with several users are summed
// in one order, last user first. So results do not depend on where the model is cut into stages.
//
// Knows nothing of other ranks: what arrives and leaves goes through StageMessages. The gradients
// of weights go to StageGradient as soon as a part's backward pass has made them, while they are
// in the caches. Not thread-safe. Exceptions of LibTorch pass through.
class StageCompute {
 public:
  // All references are borrowed. `records_saved`: note what autograd saves, for StageSwap.
  StageCompute(const StepPlan& plan, const StageParts& parts, const StageOptions& options,
               StageMessages& messages, StageStatistics& statistics, StageGradient& gradient,
               bool records_saved);

  // Forgets the step before, also one that was given up. `step` is borrowed until the next call.
  void BeginStep(const StageStep& step);

  // Asks the source for the input or the target of a micro-batch.
  Status Feed(const Buffer& buffer);

  // `module`: a part of the model, or kAllModules for all parts of the stage.
  void Forward(std::uint32_t micro_batch, std::uint32_t module);
  void Backward(std::uint32_t micro_batch, std::uint32_t module);
  // Forgets the graphs of a forward pass, and computes them again. Random draws are keyed, so they
  // are the same as before.
  void Drop(std::uint32_t micro_batch, std::uint32_t module);
  void Recompute(std::uint32_t micro_batch, std::uint32_t module);

  // The output of a part of this stage.
  const torch::Tensor& Output(std::uint32_t micro_batch, std::uint32_t part) const;
  const MicroBatchState& state(std::uint32_t micro_batch) { return states_[micro_batch]; }
  // Frees what a buffer of the plan stands for; nothing for buffers of messages that arrive.
  void Release(const Buffer& buffer);

  // Loss and score of the micro-batches that were computed. Waits for a GPU.
  StageOutcome Outcome();

 private:
  Pass PassOf(std::uint32_t micro_batch, std::uint32_t part);
  // The parts that `module` stands for, as [first, last).
  std::pair<std::uint32_t, std::uint32_t> RangeOf(std::uint32_t module) const;
  torch::Tensor ValueOf(std::uint32_t micro_batch, std::uint32_t part);
  // Computes a part and leaves its graph. `pass` says where statistics go. `again`: what was
  // dropped is computed once more, and neither losses nor values that are still there change.
  void ForwardPart(std::uint32_t part, Pass pass, bool again);
  void EvaluateLoss(MicroBatchState& state, PartGraph& graph, std::uint32_t micro_batch,
                    bool again);
  void BackwardPart(std::uint32_t micro_batch, std::uint32_t part);

  const StepPlan& plan_;
  const StageParts& parts_;
  const StageOptions& options_;
  StageMessages& messages_;
  StageStatistics& statistics_;
  StageGradient& gradient_;
  const bool records_saved_;
  const std::vector<std::vector<std::uint32_t>> sources_;  // by part of the model: SourcesOf
  const StageStep* step_ = nullptr;
  std::map<std::uint32_t, MicroBatchState> states_;  // by micro-batch
  std::vector<std::pair<std::uint32_t, torch::Tensor>> losses_;  // by micro-batch, as they came
  Score score_;
};

}  // namespace forebay::train
