// The plan of one replica has the bytes and the time of the whole plan.
#include "trainer/schedule/memory/one_replica.h"

#include <gtest/gtest.h>

#include <random>

#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train {
namespace {

// Moves any of what is saved; all replicas of a stage the same.
StepPlan MoveAlike(std::mt19937_64& random, const StepPlan& plan) {
  StepKeeping choices = KeepAll(plan, {});
  for (std::uint32_t rank = 0; rank < choices.size(); ++rank) {
    if (plan.layout.ReplicaOf(rank) > 0) {
      choices[rank] = choices[plan.layout.StageOf(rank)];
      continue;
    }
    for (std::vector<ModuleKeeping>& modules : choices[rank]) {
      for (ModuleKeeping& keeping : modules) {
        keeping.graph = static_cast<Keeping>(random() % 3);
        keeping.output = static_cast<Keeping>(random() % 2);
      }
    }
  }
  return MoveSaved(plan, choices).value();
}

TEST(OneReplicaTest, NeedsTheBytesAndTheTimeOfTheWholePlan) {
  std::mt19937_64 random(61);
  SimulationCosts costs;
  costs.message.latency_ns = 50;
  costs.collective.latency_ns = 300;
  costs.update_ns_per_byte = 0.5;
  int replicated = 0;
  for (int round = 0; round < 300; ++round) {
    StepPlan plan = MakeRandomCase(random).plan;
    if (plan.trains && round % 2 == 0) plan = MoveAlike(random, plan);
    if (plan.layout.replicas > 1) ++replicated;
    const auto facts = CheckPlan(plan, {});
    ASSERT_TRUE(facts.has_value()) << facts.error().message();
    const Simulation whole = SimulatePlan(plan, costs).value();
    const StepPlan one = OneReplica(plan);
    const auto one_facts = CheckPlan(one, {});
    ASSERT_TRUE(one_facts.has_value()) << one_facts.error().message() << ToText(one);
    const Simulation part = SimulatePlan(one, costs).value();
    EXPECT_EQ(part.step_ns, whole.step_ns) << ToText(plan);
    ASSERT_EQ(one.programs.size(), plan.layout.stages);
    for (std::uint32_t rank = 0; rank < plan.layout.ranks(); ++rank) {
      const std::uint32_t stage = plan.layout.StageOf(rank);
      EXPECT_EQ(one_facts->peak_bytes[stage], facts->peak_bytes[rank]) << "rank " << rank;
      EXPECT_EQ(one_facts->peak_host_bytes[stage], facts->peak_host_bytes[rank]);
      EXPECT_EQ(part.ranks[stage].wait_collective_ns, whole.ranks[rank].wait_collective_ns);
      EXPECT_EQ(part.ranks[stage].wait_swap_ns, whole.ranks[rank].wait_swap_ns);
    }
  }
  EXPECT_GT(replicated, 100);
}

TEST(OneReplicaTest, ALoneReplicaStaysAsItIs) {
  PlanRequest request;
  request.stages = CutIntoStages(EvenChain(4), {{0, 2}}).value();
  request.layout = {.replicas = 1, .stages = 2};
  request.micro_batches = 4;
  const StepPlan plan = BuildPlan(request).value();
  EXPECT_EQ(ToText(OneReplica(plan)), ToText(plan));
}

}  // namespace
}  // namespace forebay::train
