// PlanLayouts: searches replicas x stages, schedules and cuts with the checker and the simulator,
// and says why each of the best is good and the others are not possible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/plan_builder.h"
#include "trainer/schedule/plan_checker.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/split_search.h"

namespace forebay::train {

struct PlannerRequest {
  ModelGraph graph;
  std::uint32_t ranks = 1;
  std::uint32_t micro_batches = 1;  // canonical ones of a step
  std::vector<Schedule> schedules = {Schedule::k1f1b, Schedule::kGpipe};
  std::uint64_t budget_bytes = 0;  // of each rank; 0: unlimited
  std::uint32_t optimiser_states = 1;
  std::uint64_t bucket_bytes = 4U << 20;
  bool clips = false;
  SimulationCosts costs;
};

struct LayoutChoice {
  Layout layout;
  Schedule schedule = Schedule::k1f1b;
  StageSplit split;
  StepPlan plan;
  PlanFacts facts;
  Simulation simulation;
  std::string reason;  // where its time and memory go
};

// What the search found. What a run does when is core/layout_plan's LayoutPlan.
struct LayoutRanking {
  std::vector<LayoutChoice> choices;  // fastest predicted step first; equal times: fewest bytes
  std::vector<std::string> refused;   // "4 x 1 1f1b: why not"
};

// One choice for a layout and a schedule; its errors are those of FindSplit, BuildPlan and
// CheckPlan.
Result<LayoutChoice> PlanOneLayout(const PlannerRequest& request, const Layout& layout,
                                   Schedule schedule);

// All of them. kInvalidArgument for a bad graph, no ranks or no schedules; kResourceExhausted
// where nothing is within the budget: the message lists what was refused.
Result<LayoutRanking> PlanLayouts(const PlannerRequest& request);

// The `count` best, a line each with its reason, then what was refused.
std::string ToText(const LayoutRanking& plan, std::size_t count);

}  // namespace forebay::train
