// FindSplit: where to cut the chain of modules, so that the slowest stage is as fast as possible.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/model_graph.h"
#include "trainer/schedule/pipeline_schedule.h"

namespace forebay::train {

struct SplitCosts {
  // A stage's own time per byte that it sends or receives, forward and backward.
  double message_ns_per_byte = 0;
  std::uint64_t message_ns = 0;  // per message
  // Memory of a stage: parameters times `parameter_copies`; and what is saved and has arrived for
  // the micro-batches that the stage holds at once under the schedule, with the largest scratch of
  // a module, or, where that is more, what reductions hold after them.
  std::uint64_t budget_bytes = 0;  // 0: unlimited
  std::uint32_t parameter_copies = 3;
  std::uint32_t micro_batches = 1;  // of a replica
  std::uint32_t replicas = 1;
  const PipelineSchedule* schedule = &PipelineSchedules().front();
  // What is saved may be swapped out or computed again: of it only the largest module's counts.
  bool moves_saved = false;
};

struct SplitChoice {
  StageSplit split;
  std::uint64_t slowest_ns = 0;  // one micro-batch, forward and backward, messages included
  std::uint32_t slowest_stage = 0;
};

// Dynamic programming over contiguous cuts; among equals, the one that sends fewest bytes. Skip
// edges count at both of their ends. O(stages x modules^2). kInvalidArgument for more stages than
// modules; kResourceExhausted if no cut is within the budget, naming the smallest budget that would
// do.
Result<SplitChoice> FindSplit(const ModelGraph& graph, std::uint32_t stages,
                              const SplitCosts& costs);

// Cuts that are worth trying under a budget if saved values may be moved away, the best first and
// each once: the fastest cut within the budget if everything is kept, the fastest one if everything
// is moved, and the one whose fullest stage then has the fewest bytes. The bytes that are counted
// here are close to those of a plan, but only a plan shows whether a cut fits. kInvalidArgument for
// more stages than modules.
Result<std::vector<StageSplit>> FindSplitsWithin(const ModelGraph& graph, std::uint32_t stages,
                                                 SplitCosts costs);

}  // namespace forebay::train
