// BuildPlan: the instruction lists of a step under a pipeline schedule, with skip edges between any
// two stages. The tensor of a skip goes straight from the stage that makes it to the stage that
// uses it; stages in between do not see it.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"
#include "trainer/schedule/pipeline_schedule.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

struct PlanRequest {
  StageGraph stages;
  Layout layout;
  std::uint32_t micro_batches = 1;  // canonical ones of a step, over all replicas
  const PipelineSchedule* schedule = &PipelineSchedules().front();
  bool trains = true;                 // false: forward only
  std::uint32_t optimiser_states = 1;  // copies of the parameters that the optimiser keeps
  std::uint64_t bucket_bytes = 4U << 20;  // gradients are reduced in pieces of at most this
  bool clips = false;                 // gradient norms are gathered before the update
};

// How many gradient buffers of a stage exist at once while `micro_batches` gradients are summed in
// a binary tree over their index.
std::uint32_t GradientBuffers(std::uint32_t micro_batches);

// How many copies of its parameters a training stage holds: weights, the optimiser's states, and
// the gradient buffers. `micro_batches` is the number of a replica.
std::uint32_t ParameterCopies(std::uint32_t optimiser_states, std::uint32_t micro_batches);

// kInvalidArgument, naming the figure and what is allowed, if the layout does not fit the stages,
// if the replicas do not divide the micro-batches, or if (with several replicas) their share is not
// a power of two. In the last case a replica's sum would not be a node of the tree over all
// micro-batches, and the result would depend on the layout.
Result<StepPlan> BuildPlan(const PlanRequest& request);

}  // namespace forebay::train
