// PlanMemory: chooses for every module and micro-batch whether what is saved for backward is kept,
// swapped to the host or computed again, so that a budget of bytes is met at the least time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/contract/result.h"
#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/memory/memory_plan.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

struct MemoryRequest {
  StepPlan plan;  // as BuildPlan made it
  SimulationCosts costs;
  std::uint64_t budget_bytes = 0;       // of each rank
  std::uint64_t host_budget_bytes = 0;  // of each rank; 0: unlimited
  bool may_swap = true;
  bool may_recompute = true;
  // Smaller buffers are not worth a transfer.
  std::uint64_t least_swap_bytes = 64U << 10;
  // Bounds the time of the search, on every machine alike: the instructions, of one replica, of all
  // plans that are tried. A third each is for swapping, recomputing and both. Only the first plans
  // of each, which move everything, and one for every step of the greedy choice go beyond it.
  std::uint64_t most_instructions = 2'000'000;
};

struct MemoryChoice {
  StepKeeping keeping;  // of all replicas of a stage the same
  StepPlan plan;        // rewritten by it
  PlanFacts facts;
  Simulation simulation;
  std::string reason;  // by stage: what is moved, what it saves and costs
  std::uint64_t tried_plans = 0;
  std::uint64_t tried_instructions = 0;  // of one replica, in all of them
};

// Greedy by added time for each byte of the peak that is saved, as Capuchin (Peng et al., 2020)
// ranks tensors, then improved by exchanging single choices while that makes the step shorter. What
// swapping alone and recomputing alone come to is found first; both together are chosen where they
// promise a step that is shorter by 1 % at least.
// kResourceExhausted where nothing meets the budget: the message names the least that would do,
// of what was tried. kInvalidArgument as CheckPlan, MoveSaved and SimulatePlan.
Result<MemoryChoice> PlanMemory(const MemoryRequest& request);

}  // namespace forebay::train
