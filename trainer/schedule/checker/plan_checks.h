// The checks of CheckPlan that look at instructions without executing them, and RankView, through
// which they read one rank's list. Each check is a .cc file. CheckIndices comes first, because the
// others use indices of the plan without a bound check.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Point 1 of CheckPlan: every index points at something, and every instruction may make the
// buffers that it makes. kInvalidArgument names rank and instruction, as in all checks below.
Status CheckIndices(const StepPlan& plan);

// Point 2: the lists compute the whole step, every part of it once and from its own inputs.
Status CheckWork(const StepPlan& plan);

// partner[rank][instruction]: for a message, the index of its other end in the list of the
// instruction's peer; kNoPartner for every other instruction.
inline constexpr std::uint32_t kNoPartner = 0xffffffff;
using MessagePartners = std::vector<std::vector<std::uint32_t>>;

// Point 4: finds both ends of every message.
Result<MessagePartners> MatchMessages(const StepPlan& plan);

// Point 5: the order of collectives.
Status CheckCollectiveOrder(const StepPlan& plan);

// One rank's list within a plan, which it borrows.
struct RankView {
  const StepPlan& plan;
  std::uint32_t rank;

  const RankProgram& program() const { return plan.programs[rank]; }
  std::uint32_t stage() const { return plan.layout.StageOf(rank); }
  std::uint32_t first_micro_batch() const {
    return plan.layout.ReplicaOf(rank) * plan.MicroBatchesPerReplica();
  }
  // Whether the micro-batch is of this rank's replica.
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
