// RankView: one rank's list within a plan, for the checks of plan_pieces, plan_work and
// plan_matching: whose it is, and the means to say what is wrong in it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Borrows the plan.
struct RankView {
  const StepPlan& plan;
  std::uint32_t rank;

  const RankProgram& program() const { return plan.programs[rank]; }
  std::uint32_t stage() const { return plan.layout.StageOf(rank); }
  std::uint32_t first_micro_batch() const {
    return plan.layout.ReplicaOf(rank) * plan.MicroBatchesPerReplica();
  }
  bool Owns(std::uint32_t micro_batch) const {
    return micro_batch >= first_micro_batch() &&
           micro_batch - first_micro_batch() < plan.MicroBatchesPerReplica();
  }
  Error Fault(std::size_t at, std::string_view what) const {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: {}", InstructionName(plan, rank, at), what));
  }
};

// The module whose output an edge carries; kAllModules where there is no such edge.
inline std::uint32_t CarriedBy(const RankView& view, std::uint32_t edge) {
  const std::vector<StageEdge>& edges = view.plan.stages.edges;
  return edge < edges.size() ? edges[edge].from_module : kAllModules;
}

}  // namespace forebay::train
