// The choice of what to swap or recompute under a budget, against what is best on graphs that are
// small enough to try everything.
#include "trainer/schedule/memory/memory_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train::memory_planner_test {

StepPlan PlanOf(const ModelGraph& graph, const StageSplit& split, std::uint32_t replicas,
                std::uint32_t micro_batches, std::string_view schedule) {
  PlanRequest request;
  request.stages = CutIntoStages(graph, split).value();
  request.layout = {.replicas = replicas, .stages = split.stages()};
  request.micro_batches = micro_batches;
  request.schedule = FindPipelineSchedule(schedule).value();
  return BuildPlan(request).value();
}

std::uint64_t PeakOf(const StepPlan& plan) {
  return std::ranges::max(CheckPlan(plan, {}).value().peak_bytes);
}

MemoryRequest RequestFor(StepPlan plan, std::uint64_t budget_bytes, double bytes_per_ns) {
  MemoryRequest request;
  request.plan = std::move(plan);
  request.budget_bytes = budget_bytes;
  request.costs.swap.bytes_per_ns = bytes_per_ns;
  request.least_swap_bytes = 1;
  return request;
}

// Bytes of what the modules keep, all in all; nothing else.
ModelGraph Chain(const std::vector<ModuleProfile>& modules) {
  ModelGraph graph;
  graph.modules = modules;
  return graph;
}

ModuleProfile Module(std::uint64_t forward_ns, std::uint64_t graph_bytes,
                     std::uint64_t output_bytes) {
  return {.name = "m",
          .forward_ns = forward_ns,
          .backward_ns = 2 * forward_ns,
          .saved_bytes = graph_bytes + output_bytes,
          .output_bytes = output_bytes};
}

TEST(MemoryPlannerTest, KeepsAllWhereItFits) {
  const StepPlan plan = PlanOf(EvenChain(4), {{0}}, 1, 2, "gpipe");
  const auto choice = PlanMemory(RequestFor(plan, PeakOf(plan), 1.0));
  ASSERT_TRUE(choice.has_value()) << choice.error().ToString();
  EXPECT_EQ(choice->keeping, KeepAll(plan, {}));
  EXPECT_NE(choice->reason.find("keeps all"), std::string::npos) << choice->reason;
}

TEST(MemoryPlannerTest, RecomputesWhatIsCheapOverASlowLink) {
  // Module 0 is cheap to compute again, module 1 is dear; either alone would do.
  const StepPlan plan = PlanOf(Chain({Module(10, 1000, 10), Module(10'000, 1000, 10),
                                      Module(100, 100, 10)}),
                               {{0}}, 1, 1, "1f1b");
  const auto choice = PlanMemory(RequestFor(plan, PeakOf(plan) - 900, 1e-6));
  ASSERT_TRUE(choice.has_value()) << choice.error().ToString();
  EXPECT_EQ(choice->keeping[0][0][0].graph, Keeping::kRecompute);
  EXPECT_FALSE(choice->keeping[0][0][1].moves());
  EXPECT_NE(choice->reason.find("recomputes 0.001 MB of 1 modules"), std::string::npos)
      << choice->reason;
}

TEST(MemoryPlannerTest, SwapsOverAFastLink) {
  const StepPlan plan = PlanOf(Chain({Module(10'000, 1000, 10), Module(10'000, 1000, 10),
                                      Module(10'000, 1000, 10), Module(10'000, 1000, 10)}),
                               {{0}}, 1, 1, "1f1b");
  const auto choice = PlanMemory(RequestFor(plan, PeakOf(plan) - 1000, 1.0));
  ASSERT_TRUE(choice.has_value()) << choice.error().ToString();
  EXPECT_EQ(choice->keeping[0][0][0].graph, Keeping::kSwap);
  EXPECT_EQ(choice->simulation.ranks[0].wait_swap_ns, 0U);
  EXPECT_NE(choice->reason.find("swaps 0.001 MB of 1 modules"), std::string::npos)
      << choice->reason;
}

TEST(MemoryPlannerTest, ComesBackAsFarAheadAsASlowLinkTakes) {
  // A transfer takes as long as the backward passes of two modules.
  const StepPlan plan = PlanOf(Chain(std::vector(8, Module(1000, 4000, 10))), {{0}}, 1, 1,
                               "1f1b");
  MemoryRequest request = RequestFor(plan, PeakOf(plan) - 4000, 1.0);
  request.may_recompute = false;
  const auto choice = PlanMemory(request);
  ASSERT_TRUE(choice.has_value()) << choice.error().ToString();
  EXPECT_EQ(choice->simulation.ranks[0].wait_swap_ns, 0U) << choice->reason;
}

TEST(MemoryPlannerTest, SmallBuffersAreNotSwapped) {
  const StepPlan plan = PlanOf(EvenChain(4), {{0}}, 1, 4, "gpipe");
  MemoryRequest request = RequestFor(plan, PeakOf(plan) - 400, 1.0);
  request.may_recompute = false;
  EXPECT_TRUE(PlanMemory(request).has_value());
  request.least_swap_bytes = 401;  // a graph has 400
  EXPECT_FALSE(PlanMemory(request).has_value());
}

TEST(MemoryPlannerTest, NamesTheLeastThatWouldDo) {
  const StepPlan plan = PlanOf(EvenChain(4), {{0, 2}}, 2, 8, "1f1b");
  const auto refused = PlanMemory(RequestFor(plan, 10, 1.0));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  // The figure it names is enough.
  const std::string& message = refused.error().message();
  const std::string before = "fullest rank still needs ";
  const std::size_t at = message.find(before);
  ASSERT_NE(at, std::string::npos) << message;
  const std::uint64_t least = std::stoull(message.substr(at + before.size()));
  EXPECT_TRUE(PlanMemory(RequestFor(plan, least, 1.0)).has_value());
  EXPECT_FALSE(PlanMemory(RequestFor(plan, least - 1, 1.0)).has_value());
}

TEST(MemoryPlannerTest, TheHostHasABudgetToo) {
  const StepPlan plan = PlanOf(EvenChain(4), {{0}}, 1, 4, "gpipe");
  MemoryRequest request = RequestFor(plan, PeakOf(plan) - 800, 1.0);
  request.may_recompute = false;
  const auto free = PlanMemory(request);
  ASSERT_TRUE(free.has_value());
  EXPECT_GT(free->facts.peak_host_bytes[0], 0U);
  request.host_budget_bytes = 100;
  EXPECT_FALSE(PlanMemory(request).has_value());
}

TEST(MemoryPlannerTest, ReplicasDoTheSame) {
  const StepPlan plan = PlanOf(EvenChain(6), {{0, 3}}, 2, 8, "gpipe");
  const auto choice = PlanMemory(RequestFor(plan, PeakOf(plan) - 2000, 0.001));
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->keeping[0], choice->keeping[2]);
  EXPECT_EQ(choice->keeping[1], choice->keeping[3]);
}

TEST(MemoryPlannerTest, RefusesWhatIsNoPlan) {
  StepPlan plan = PlanOf(EvenChain(2), {{0}}, 1, 1, "1f1b");
  plan.programs[0].instructions.clear();
  EXPECT_EQ(PlanMemory(RequestFor(plan, 1, 1.0)).error().code(), ErrorCode::kInvalidArgument);
}

// The shortest step over all choices of one micro-batch's modules, where swaps come back one ahead;
// 0 where none fits.
std::uint64_t BestOf(const MemoryRequest& request, std::size_t modules) {
  std::uint64_t best = 0;
  std::size_t combinations = 1;
  for (std::size_t at = 0; at < modules; ++at) combinations *= 6;
  for (std::size_t code = 0; code < combinations; ++code) {
    StepKeeping keeping = KeepAll(request.plan, {});
    std::size_t rest = code;
    for (ModuleKeeping& module : keeping[0][0]) {
      module.graph = static_cast<Keeping>(rest % 3);
      module.output = static_cast<Keeping>(rest / 3 % 2);
      rest /= 6;
    }
    const StepPlan moved = MoveSaved(request.plan, keeping).value();
    if (PeakOf(moved) > request.budget_bytes) continue;
    const std::uint64_t step_ns = SimulatePlan(moved, request.costs).value().step_ns;
    best = best == 0 ? step_ns : std::min(best, step_ns);
  }
  return best;
}

TEST(MemoryPlannerTest, ComesCloseToExhaustiveSearch) {
  std::mt19937_64 random(43);
  double worst = 1;
  int exact = 0;
  int planned = 0;
  for (int round = 0; round < 30; ++round) {
    std::vector<ModuleProfile> modules;
    for (int at = 0; at < 4; ++at) {
      modules.push_back(Module(50 + random() % 1000, random() % 2000, 10 + random() % 500));
    }
    const StepPlan plan = PlanOf(Chain(modules), {{0}}, 1, 1, "1f1b");
    const std::uint64_t peak = PeakOf(plan);
    const MemoryRequest request =
        RequestFor(plan, peak * (50 + random() % 50) / 100,
                   0.2 + 0.1 * static_cast<double>(random() % 30));
    const std::uint64_t best = BestOf(request, modules.size());
    const auto choice = PlanMemory(request);
    ASSERT_TRUE(choice.has_value() || best == 0) << choice.error().message();
    if (!choice.has_value()) continue;
    EXPECT_LE(choice->facts.peak_bytes[0], request.budget_bytes);
    ++planned;
    if (choice->simulation.step_ns <= best) ++exact;
    worst = std::max(worst, static_cast<double>(choice->simulation.step_ns) /
                                static_cast<double>(best));
  }
  RecordProperty("exact_of_" + std::to_string(planned), exact);
  RecordProperty("worst", std::to_string(worst));
  EXPECT_GT(planned, 15);
  EXPECT_GE(exact * 10, planned * 8) << exact << " of " << planned;
  EXPECT_LE(worst, 1.10);
}

TEST(MemoryPlannerTest, IsNeverSlowerThanOneMeansAlone) {
  std::mt19937_64 random(47);
  int mixed = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<ModuleProfile> modules;
    for (int at = 0; at < 6; ++at) {
      modules.push_back(Module(50 + random() % 3000, 500 + random() % 2000, 10 + random() % 100));
    }
    const StepPlan plan = PlanOf(Chain(modules), {{0, 3}}, 1, 4, "1f1b");
    MemoryRequest request = RequestFor(plan, PeakOf(plan) * 6 / 10, 1.0);
    request.most_instructions = round % 2 == 0 ? 1'000'000 : 30'000;  // however short the search
    const auto both = PlanMemory(request);
    request.may_swap = false;
    const auto recompute = PlanMemory(request);
    request.may_swap = true;
    request.may_recompute = false;
    const auto swap = PlanMemory(request);
    for (const auto* alone : {&recompute, &swap}) {
      if (!alone->has_value()) continue;
      ASSERT_TRUE(both.has_value());
      EXPECT_LE(both->simulation.step_ns, (*alone)->simulation.step_ns) << "round " << round;
    }
    if (both.has_value() &&
        (!recompute.has_value() || both->simulation.step_ns < recompute->simulation.step_ns) &&
        (!swap.has_value() || both->simulation.step_ns < swap->simulation.step_ns)) {
      ++mixed;
    }
  }
  EXPECT_GT(mixed, 1);
}

// A model of 128 modules on 64 ranks, 70 % of the bytes that keeping all would save.
MemoryRequest OnSixtyFourRanks(std::uint32_t stages) {
  std::mt19937_64 random(53);
  ModelGraph graph = EvenChain(128);
  for (ModuleProfile& module : graph.modules) {
    module.forward_ns = 500'000 + random() % 1'000'000;
    module.backward_ns = 2 * module.forward_ns;
    module.saved_bytes = (8U << 20) + random() % (8U << 20);
    module.output_bytes = 1U << 20;
  }
  StageSplit split;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    split.begins.push_back(stage * 128 / stages);
  }
  const StepPlan plan = PlanOf(graph, split, 64 / stages, 128, "1f1b");
  const std::uint64_t resident = plan.programs[0].resident_bytes;
  const std::uint64_t budget = resident + (PeakOf(plan) - resident) * 7 / 10;
  return RequestFor(plan, budget, 4.0);
}

TEST(MemoryPlannerTest, SixtyFourRanksArePlannedWithinTheBound) {
  for (const std::uint32_t stages : {1U, 8U, 64U}) {
    SCOPED_TRACE(stages);
    const MemoryRequest request = OnSixtyFourRanks(stages);
    const auto choice = PlanMemory(request);
    ASSERT_TRUE(choice.has_value()) << choice.error().ToString();
    EXPECT_LE(std::ranges::max(choice->facts.peak_bytes), request.budget_bytes);
    EXPECT_GT(choice->tried_plans, 20U);
    // Beyond the bound: what moves everything, and the steps of the greedy choice.
    EXPECT_LE(choice->tried_instructions, request.most_instructions * 3 / 2);
    // It was enough for a plan that costs little of the time that moving everything takes.
    const StepPlan all = MoveSaved(request.plan, KeepAll(request.plan,
                                                         {.graph = Keeping::kRecompute})).value();
    const std::uint64_t kept_ns = SimulatePlan(request.plan, request.costs)->step_ns;
    const std::uint64_t all_ns = SimulatePlan(all, request.costs)->step_ns;
    EXPECT_LT(choice->simulation.step_ns - kept_ns, (all_ns - kept_ns) * 4 / 10)
        << choice->reason;
    RecordProperty("plans_" + std::to_string(stages), static_cast<int>(choice->tried_plans));
  }
}

// However little it may try, it says what fits: the first plans move everything.
TEST(MemoryPlannerTest, ASearchWithoutWorkStillFindsWhatFits) {
  MemoryRequest request = OnSixtyFourRanks(64);
  request.most_instructions = 0;
  const auto choice = PlanMemory(request);
  ASSERT_TRUE(choice.has_value()) << choice.error().ToString();
  EXPECT_LE(choice->tried_plans, 20U);
}

}  // namespace forebay::train::memory_planner_test
