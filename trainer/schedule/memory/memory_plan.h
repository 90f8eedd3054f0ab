// MoveSaved: rewrites a plan so that what is saved for backward is swapped to the host or
// computed again, module by module. The schedule stays as it is.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// What becomes of values between forward and backward.
enum class Keeping : std::uint8_t {
  kKeep,
  kSwap,       // to the host, and back before it is needed
  kRecompute,  // forgotten, and computed again from the module's inputs
};

// "keep", "swap" or "recompute".
std::string_view KeepingName(Keeping keeping);

// Of one module and micro-batch.
struct ModuleKeeping {
  Keeping graph = Keeping::kKeep;   // what autograd saves, without inputs and output
  // kKeep or kSwap: other modules need it. An output that leaves the stage is always kept.
  Keeping output = Keeping::kKeep;
  // What is swapped begins to come back so many computations of modules before it is needed: the
  // slower the link, the more hide it, and the longer it takes room.
  std::uint32_t ahead = 1;

  bool moves() const { return graph != Keeping::kKeep || output != Keeping::kKeep; }
  friend bool operator==(const ModuleKeeping&, const ModuleKeeping&) = default;
};

// Of one rank: [micro-batch of its replica][module of its stage].
using RankKeeping = std::vector<std::vector<ModuleKeeping>>;
// By rank.
using StepKeeping = std::vector<RankKeeping>;

// All modules of all micro-batches of the plan with the same keeping.
StepKeeping KeepAll(const StepPlan& plan, const ModuleKeeping& keeping);

// `plan` is as BuildPlan made it. On ranks that move something, each pass is split into modules,
// each with buffers of its own:
//   F m [DROP m | SWAPOUT m]; outputs are swapped out after their last user here. One buffer at
//   a time is on its way out: until the next one follows, or the last F of the pass begins;
//   SWAPIN of what module m - 1, or one further ahead, needs, [RECOMP m] B m.
// An output whose graph is dropped ends with its first user's B, the last to need it, and RECOMP
// makes it again.
// kInvalidArgument for an evaluation, for a plan whose passes are split already, and for choices
// of another shape or an output that is to be recomputed.
Result<StepPlan> MoveSaved(const StepPlan& plan, const StepKeeping& choices);

// The program that MoveSaved gives one rank, for a search that changes few ranks at a time. The
// caller knows that MoveSaved would take `plan` and `keeping`: nothing is checked here.
RankProgram MovedProgram(const StepPlan& plan, std::uint32_t rank, const RankKeeping& keeping);

}  // namespace forebay::train
