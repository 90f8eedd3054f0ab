// Times of small plans that can be worked out by hand: bubbles, links, collectives, swaps.
#include "trainer/schedule/plan_simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train::plan_simulator_test {

constexpr std::uint64_t kForwardNs = 1'000'000;
constexpr std::uint64_t kBackwardNs = 2'000'000;

SimulationCosts FreeLinks() {
  SimulationCosts costs;
  costs.message.bytes_per_ns = 1e12;
  costs.collective.bytes_per_ns = 1e12;
  costs.swap.bytes_per_ns = 1e12;
  return costs;
}

// One module a stage.
StepPlan PlanOf(std::uint32_t stages, std::uint32_t replicas, std::uint32_t micro_batches,
                std::string_view schedule) {
  StageSplit split;
  for (std::uint32_t stage = 0; stage < stages; ++stage) split.begins.push_back(stage);
  PlanRequest request;
  request.stages = CutIntoStages(EvenChain(stages), split).value();
  request.layout = {.replicas = replicas, .stages = stages};
  request.micro_batches = micro_batches;
  request.schedule = FindPipelineSchedule(schedule).value();
  return BuildPlan(request).value();
}

TEST(PlanSimulatorTest, OneProcessHasNoBubble) {
  const auto simulation = SimulatePlan(PlanOf(1, 1, 8, "1f1b"), FreeLinks());
  ASSERT_TRUE(simulation.has_value());
  EXPECT_EQ(simulation->step_ns, 8 * (kForwardNs + kBackwardNs));
  EXPECT_DOUBLE_EQ(simulation->bubble, 0);
}

TEST(PlanSimulatorTest, TheBubbleIsTheTextbooks) {
  // (p - 1) / (m + p - 1), of both schedules, with equal stages and free links.
  for (const std::string_view schedule : {"gpipe", "1f1b"}) {
    for (const std::uint32_t stages : {2U, 4U}) {
      const auto simulation = SimulatePlan(PlanOf(stages, 1, 8, schedule), FreeLinks());
      ASSERT_TRUE(simulation.has_value());
      EXPECT_EQ(simulation->step_ns, (8 + stages - 1) * (kForwardNs + kBackwardNs));
      EXPECT_NEAR(simulation->bubble, (stages - 1.0) / (8 + stages - 1.0), 1e-6);
    }
  }
}

TEST(PlanSimulatorTest, LinksCostLatencyAndBytes) {
  SimulationCosts costs = FreeLinks();
  costs.message = {.latency_ns = 5000, .bytes_per_ns = 0.01};  // 100 bytes: 10 us more
  const auto simulation = SimulatePlan(PlanOf(2, 1, 1, "gpipe"), costs);
  ASSERT_TRUE(simulation.has_value());
  EXPECT_EQ(simulation->step_ns, 2 * (kForwardNs + kBackwardNs) + 2 * 15'000);
  EXPECT_EQ(simulation->ranks[1].wait_message_ns, kForwardNs + 15'000);
}

TEST(PlanSimulatorTest, MessagesOfOneLinkFollowEachOther) {
  SimulationCosts costs = FreeLinks();
  costs.message = {.latency_ns = 0, .bytes_per_ns = 100.0 / 3'000'000};  // 3 ms each
  const auto simulation = SimulatePlan(PlanOf(2, 1, 4, "gpipe"), costs);
  ASSERT_TRUE(simulation.has_value());
  // The link, not the stage of 1 ms, sets the pace of the activations: the last of four arrives
  // at 1 + 4 x 3 ms; the gradients, every 3 ms, follow it at 2 ms a piece.
  const std::uint64_t arrival_ns = kForwardNs + 4 * 3'000'000;
  const std::uint64_t gradients_ns = kBackwardNs + 4 * 3'000'000;
  EXPECT_EQ(simulation->step_ns, arrival_ns + kForwardNs + gradients_ns + kBackwardNs);
}

TEST(PlanSimulatorTest, CallsAndCopiesAreTheRanksOwnTime) {
  SimulationCosts costs = FreeLinks();
  costs.call_ns = 700;
  costs.copy_ns_per_byte = 2;
  costs.feed_ns = 50;
  const auto simulation = SimulatePlan(PlanOf(2, 1, 1, "gpipe"), costs);
  ASSERT_TRUE(simulation.has_value());
  EXPECT_EQ(simulation->ranks[0].other_ns, 2 * (700U + 200U) + 50);
}

TEST(PlanSimulatorTest, CollectivesBeginWithTheLastMember) {
  SimulationCosts costs = FreeLinks();
  costs.collective = {.latency_ns = 100, .bytes_per_ns = 1.0};
  StepPlan plan = PlanOf(1, 2, 2, "gpipe");
  const auto simulation = SimulatePlan(plan, costs);
  ASSERT_TRUE(simulation.has_value());
  // 1,000 bytes of gradients over two ranks: 2 (n - 1) / n = 1.
  EXPECT_EQ(simulation->step_ns, kForwardNs + kBackwardNs + 100 + 1000);
  EXPECT_EQ(simulation->ranks[0].wait_collective_ns, 1100U);
}

TEST(PlanSimulatorTest, TheUpdateCounts) {
  SimulationCosts costs = FreeLinks();
  costs.update_ns_per_byte = 1.234;  // of 1,000 bytes
  const auto simulation = SimulatePlan(PlanOf(1, 1, 1, "gpipe"), costs);
  ASSERT_TRUE(simulation.has_value());
  EXPECT_EQ(simulation->step_ns, kForwardNs + kBackwardNs + 1234);
}

TEST(PlanSimulatorTest, PartsAddUpToTheStepOnEveryRank) {
  std::mt19937_64 random(3);
  SimulationCosts costs;
  costs.message = {.latency_ns = 40, .bytes_per_ns = 0.5};
  costs.collective = {.latency_ns = 90, .bytes_per_ns = 2};
  costs.call_ns = 11;
  costs.copy_ns_per_byte = 0.25;
  costs.feed_ns = 5;
  costs.update_ns_per_byte = 0.07;
  for (int round = 0; round < 300; ++round) {
    const StepPlan plan = RandomPlan(random);
    const auto simulation = SimulatePlan(plan, costs);
    ASSERT_TRUE(simulation.has_value());
    for (const RankTimes& times : simulation->ranks) {
      EXPECT_EQ(times.compute_ns + times.recompute_ns + times.wait_message_ns +
                    times.wait_collective_ns + times.wait_swap_ns + times.other_ns +
                    times.idle_ns,
                simulation->step_ns);
    }
    const auto facts = CheckPlan(plan, {});
    ASSERT_TRUE(facts.has_value());
    for (std::size_t rank = 0; rank < facts->peak_bytes.size(); ++rank) {
      EXPECT_LE(simulation->ranks[rank].peak_bytes, facts->peak_bytes[rank])
          << "the checker's bound is none\n" << ToText(plan);
    }
  }
}

TEST(PlanSimulatorTest, PeakOfOneProcessIsWhatItHolds) {
  const auto simulation = SimulatePlan(PlanOf(1, 1, 4, "gpipe"), FreeLinks());
  ASSERT_TRUE(simulation.has_value());
  // 1,000 bytes of parameters: weights, momentum, three gradients; four micro-batches of input,
  // target and saved values.
  EXPECT_EQ(simulation->PeakBytes(), 5000U + 4 * (64 + 8 + 500));
}

// One micro-batch's saved values leave after forward and come back before backward.
StepPlan WithSwap() {
  StepPlan plan = PlanOf(1, 1, 2, "gpipe");
  auto& list = plan.programs[0].instructions;
  const auto forward = std::ranges::find(list, Op::kForward, &Instruction::op);
  const std::uint32_t saved = forward->makes.back();
  list.insert(forward + 1, {.op = Op::kSwapOut, .needs = {saved}});
  list.insert(std::ranges::find(list, Op::kBackward, &Instruction::op),
              {.op = Op::kSwapIn, .needs = {saved}});
  return plan;
}

TEST(PlanSimulatorTest, ASwapHidesBehindComputation) {
  const StepPlan plan = WithSwap();
  ASSERT_TRUE(CheckPlan(plan, {}).has_value());
  SimulationCosts costs = FreeLinks();
  costs.swap = {.latency_ns = 0, .bytes_per_ns = 0.001};  // 500 bytes: 0.5 ms each way
  const auto simulation = SimulatePlan(plan, costs);
  ASSERT_TRUE(simulation.has_value());
  EXPECT_EQ(simulation->ranks[0].wait_swap_ns, 500'000U);  // the way back, nothing to hide behind
  EXPECT_EQ(simulation->step_ns, 2 * (kForwardNs + kBackwardNs) + 500'000);
}

TEST(PlanSimulatorTest, ASlowSwapIsWaitedFor) {
  SimulationCosts costs = FreeLinks();
  costs.swap = {.latency_ns = 0, .bytes_per_ns = 500.0 / 4'000'000};  // 4 ms each way
  const auto simulation = SimulatePlan(WithSwap(), costs);
  ASSERT_TRUE(simulation.has_value());
  // Out from 1 to 5 ms, in from 5 to 9; backward was due at 2 ms.
  EXPECT_EQ(simulation->ranks[0].wait_swap_ns, 7'000'000U);
}

TEST(PlanSimulatorTest, RecomputationCostsForwardAgain) {
  StepPlan plan = WithSwap();
  for (Instruction& instruction : plan.programs[0].instructions) {
    if (instruction.op == Op::kSwapOut) instruction.op = Op::kDrop;
    if (instruction.op == Op::kSwapIn) instruction.op = Op::kRecompute;
  }
  ASSERT_TRUE(CheckPlan(plan, {}).has_value());
  const auto simulation = SimulatePlan(plan, FreeLinks());
  ASSERT_TRUE(simulation.has_value());
  EXPECT_EQ(simulation->ranks[0].recompute_ns, kForwardNs);
  EXPECT_EQ(simulation->step_ns, 3 * kForwardNs + 2 * kBackwardNs);
}

TEST(PlanSimulatorTest, RefusesRatesThatAreNotPositive) {
  SimulationCosts costs;
  costs.swap.bytes_per_ns = 0;
  const auto simulation = SimulatePlan(PlanOf(1, 1, 1, "gpipe"), costs);
  ASSERT_FALSE(simulation.has_value());
  EXPECT_EQ(simulation.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace forebay::train::plan_simulator_test
