// PipelineSchedule: the order in which a pipeline stage passes over the micro-batches of a step.
// A plan is built from the order (plan_builder.h), and the search for a cut derives from it how
// much memory a stage needs (split_search.h). To add a schedule, add a function and a line to
// pipeline_schedule.cc. A stage is a contiguous run of parts and has one backward pass for each
// micro-batch, so interleaved stages and zero-bubble schedules do not fit here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

// A stage of a replica in one training step.
struct StageShare {
  std::uint32_t stage = 0;
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;  // of the replica
};

// A pass of a stage over one micro-batch.
struct StagePass {
  std::uint32_t index = 0;  // of the micro-batch within the replica
  bool backward = false;

  friend bool operator==(const StagePass&, const StagePass&) = default;
};

// There is one object for each schedule, which lives as long as the program.
struct PipelineSchedule {
  std::string_view name;  // in configurations and plans
  // The passes of a stage in their order. Each micro-batch has one forward pass and, later, one
  // backward pass. Indices ascend in both directions.
  std::vector<StagePass> (*order)(const StageShare& share);
};

// All schedules; the first is the default.
std::span<const PipelineSchedule> PipelineSchedules();
// The schedule of this name. kInvalidArgument, which lists the names, if there is none.
Result<const PipelineSchedule*> FindPipelineSchedule(std::string_view name);

// The largest number of micro-batches for which a stage holds what a forward pass has saved.
std::uint32_t MicroBatchesHeld(const PipelineSchedule& schedule, const StageShare& share);

}  // namespace forebay::train
