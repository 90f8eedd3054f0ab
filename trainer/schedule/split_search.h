// FindSplit: where to cut the chain, so that the slowest stage is as fast as it can be.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"
#include "trainer/schedule/model_graph.h"

namespace forebay::train {

struct SplitCosts {
  // A stage's own time per byte that it sends or receives, forward and backward.
  double message_ns_per_byte = 0;
  std::uint64_t message_ns = 0;  // per message
  // Memory of a stage: parameters times `parameter_copies`, plus what is saved for the
  // micro-batches in flight (stages - stage, at most `micro_batches`; all of them under GPipe).
  std::uint64_t budget_bytes = 0;  // 0: unlimited
  std::uint32_t parameter_copies = 3;
  std::uint32_t micro_batches = 1;  // of a replica
  bool holds_all = false;           // GPipe
};

struct SplitChoice {
  StageSplit split;
  std::uint64_t slowest_ns = 0;  // one micro-batch, forward and backward, messages included
  std::uint32_t slowest_stage = 0;
};

// Dynamic programme over contiguous cuts; among equals the one that sends fewest bytes. Skip
// edges are charged at both of their ends. O(stages x modules^2).
// kInvalidArgument for more stages than modules, kResourceExhausted where no cut is within the
// budget, naming the smallest budget that would do.
Result<SplitChoice> FindSplit(const ModelGraph& graph, std::uint32_t stages,
                              const SplitCosts& costs);

}  // namespace forebay::train
