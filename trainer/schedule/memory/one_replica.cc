// All replicas do the same work at the same time, so a search may look at the first one alone. Its
// collectives keep the number of members that are left out (`absent`), because their time depends
// on how many take part.
#include "trainer/schedule/memory/one_replica.h"

#include <algorithm>
#include <vector>

namespace forebay::train {

StepPlan OneReplica(const StepPlan& plan) {
  if (plan.layout.replicas == 1) return plan;
  StepPlan one;
  one.schedule = plan.schedule;
  one.layout = {.replicas = 1, .stages = plan.layout.stages};
  one.micro_batches = plan.MicroBatchesPerReplica();
  one.trains = plan.trains;
  one.stages = plan.stages;
  // The first replica's ranks are the first ones. Other replicas' collectives go.
  std::vector<std::uint32_t> index_of(plan.collectives.size());
  for (std::size_t id = 0; id < plan.collectives.size(); ++id) {
    Collective kept = plan.collectives[id];
    const auto gone = std::ranges::remove_if(
        kept.members, [&](std::uint32_t rank) { return rank >= plan.layout.stages; });
    kept.absent = static_cast<std::uint32_t>(gone.size());
    kept.members.erase(gone.begin(), gone.end());
    index_of[id] = static_cast<std::uint32_t>(one.collectives.size());
    if (!kept.members.empty()) one.collectives.push_back(std::move(kept));
  }
  for (std::uint32_t rank = 0; rank < plan.layout.stages; ++rank) {
    RankProgram& program = one.programs.emplace_back(plan.programs[rank]);
    for (Instruction& instruction : program.instructions) {
      if (instruction.op != Op::kCollectiveBegin && instruction.op != Op::kCollectiveEnd) continue;
      instruction.collective = index_of[instruction.collective];
    }
  }
  return one;
}

}  // namespace forebay::train
