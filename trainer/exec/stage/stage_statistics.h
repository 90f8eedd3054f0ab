// StageStatistics: batch statistics of a stage's normalisation layers, from the forward passes of a
// step to the update of the running statistics.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/exec/layers.h"
#include "trainer/exec/stage/held_part.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Each replica records those of its micro-batches; they are gathered, and then every replica
// updates its running statistics with those of all micro-batches, in their order. So replicas stay
// equal, and the result does not depend on their number. Does nothing for a stage without such
// layers. Not thread-safe.
class StageStatistics {
 public:
  // `plan` is borrowed.
  StageStatistics(const StepPlan& plan, const std::vector<HeldPart*>& parts);

  void BeginStep();
  // Around the forward pass of a micro-batch. In between layers leave their statistics with
  // recorder(), which is null where there are no such layers.
  void Begin(std::uint32_t micro_batch);
  void End() { layers_.End(); }
  BatchStatistics* recorder() { return layers_.empty() ? nullptr : &layers_; }

  // The collective that gathers the statistics of all replicas. It uses memory of this object.
  std::unique_ptr<PendingCollective> Gather(Members members, const CollectiveTag& tag);
  // Updates the running statistics with those of the first `micro_batches` of the step.
  void Apply(std::uint32_t micro_batches);

 private:
  std::span<float> RoomOf(std::uint32_t micro_batch);

  const StepPlan& plan_;
  BatchStatistics layers_;
  std::vector<float> all_;  // of all micro-batches of the step, over all replicas
  std::vector<float> own_;  // of this replica's, while they are gathered
};

}  // namespace forebay::train
