// CheckPlan: proves a step plan before it runs. What it lets pass cannot hang, mixes up no
// micro-batches, and stays within its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

struct CheckOptions {
  std::uint64_t budget_bytes = 0;  // of each rank; 0: unlimited
  // Of a transport whose sends wait for their receives (MPI_Send above the eager limit), or whose
  // collectives wait for all members as they begin (one NCCL stream).
  bool sends_wait = false;
  bool collectives_wait = false;
};

// What was proved, by rank.
struct PlanFacts {
  // No more than this is live at once: resident bytes, buffers, messages that are not known to
  // have gone out, and what an instruction takes meanwhile. An upper bound over all timings.
  std::vector<std::uint64_t> peak_bytes;
  // Swapped out; until who uses a buffer that comes back has waited for it.
  std::vector<std::uint64_t> peak_host_bytes;
};

// Checks, in this order:
//   1. every index points at something, and buffers of messages belong to their edge and
//      micro-batch;
//   2. each rank computes its stage forward (and backward) once for each of its micro-batches,
//      from the right inputs, sums gradients and statistics after that and norms after the
//      gradients, and updates once, after all of it;
//   3. a buffer is there when it is needed, is made once at a time and is gone in the end;
//   4. each message has one receive of the same edge, micro-batch and size, and on each channel
//      between two ranks they come in the same order on both sides;
//   5. members begin the collectives they share in the same order, and end all they begin;
//   6. executing the lists ends, with no set of ranks waiting for each other. Lists have no
//      choices, so that one execution stands for all;
//   7. peak bytes are within the budget.
// kInvalidArgument for 1-6 and kResourceExhausted for 7; the message names rank and instruction.
Result<PlanFacts> CheckPlan(const StepPlan& plan, const CheckOptions& options);

// Points 3 and 6 alone, for a search over rewrites of a plan that has passed CheckPlan: MoveSaved
// leaves messages and collectives as they are. What the search chooses goes through CheckPlan.
Result<PlanFacts> MeasureBytes(const StepPlan& plan);

}  // namespace forebay::train
