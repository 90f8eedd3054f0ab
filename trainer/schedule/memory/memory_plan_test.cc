// Plans after saved values are moved: the order of swaps and recomputations, peaks of memory, and
// damage that the checker must find.
#include "trainer/schedule/memory/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train::memory_plan_test {

StepPlan PlanOf(const ModelGraph& graph, const StageSplit& split, std::uint32_t micro_batches,
                std::string_view schedule) {
  PlanRequest request;
  request.stages = CutIntoStages(graph, split).value();
  request.layout = {.replicas = 1, .stages = split.stages()};
  request.micro_batches = micro_batches;
  request.schedule = FindPipelineSchedule(schedule).value();
  return BuildPlan(request).value();
}

constexpr ModuleKeeping kDropped{.graph = Keeping::kRecompute};
constexpr ModuleKeeping kSwapped{.graph = Keeping::kSwap, .output = Keeping::kSwap};

// "F0 F1 D1 ..." of one rank, without what has to do with other ranks.
std::string Moves(const StepPlan& plan, std::uint32_t rank) {
  std::string text;
  for (const Instruction& instruction : plan.programs[rank].instructions) {
    const bool pass = instruction.op == Op::kForward || instruction.op == Op::kBackward;
    std::string name;
    std::uint32_t module = instruction.module;
    if (pass) name = instruction.op == Op::kForward ? "F" : "B";
    if (instruction.op == Op::kSwapOut) name = "out";
    if (instruction.op == Op::kSwapEnd) name = "end";
    if (instruction.op == Op::kSwapIn) name = "in";
    if (instruction.op == Op::kDrop) name = "drop";
    if (instruction.op == Op::kRecompute) name = "again";
    if (name.empty()) continue;
    if (!pass) {
      const Buffer& buffer = plan.programs[rank].buffers[instruction.needs.front()];
      module = buffer.module;
      if (buffer.kind == BufferKind::kValue) name += "*";
    }
    text += (text.empty() ? "" : " ") + name + std::to_string(module);
  }
  return text;
}

TEST(MemoryPlanTest, DropsAfterForwardAndComputesAgainBeforeBackward) {
  const StepPlan plan = PlanOf(EvenChain(3), {{0}}, 1, "1f1b");
  const auto moved = MoveSaved(plan, KeepAll(plan, kDropped));
  ASSERT_TRUE(moved.has_value()) << moved.error().ToString();
  EXPECT_EQ(Moves(*moved, 0),
            "F0 drop0 F1 drop1 F2 drop2 again2 B2 again1 B1 again0 B0");
  ASSERT_TRUE(CheckPlan(*moved, {}).has_value());
}

TEST(MemoryPlanTest, SwapsInOneModuleAhead) {
  const StepPlan plan = PlanOf(EvenChain(3), {{0}}, 1, "1f1b");
  StepKeeping choices = KeepAll(plan, {.graph = Keeping::kSwap});
  choices[0][0][2] = {};
  const auto moved = MoveSaved(plan, choices);
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(Moves(*moved, 0), "F0 out0 F1 end0 out1 F2 in1 B2 in0 B1 B0");
  ASSERT_TRUE(CheckPlan(*moved, {}).has_value());
}

TEST(MemoryPlanTest, SwapsInAsFarAheadAsIsWanted) {
  const StepPlan plan = PlanOf(EvenChain(4), {{0}}, 1, "1f1b");
  StepKeeping choices = KeepAll(plan, {});
  choices[0][0][0] = {.graph = Keeping::kSwap, .ahead = 3};
  const auto moved = MoveSaved(plan, choices);
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(Moves(*moved, 0), "F0 out0 F1 F2 end0 F3 in0 B3 B2 B1 B0");
  ASSERT_TRUE(CheckPlan(*moved, {}).has_value());
  // Never before it has gone.
  choices[0][0][0].ahead = 100;
  const auto early = MoveSaved(plan, choices);
  ASSERT_TRUE(early.has_value());
  EXPECT_EQ(Moves(*early, 0), "F0 out0 F1 F2 end0 in0 F3 B3 B2 B1 B0");
  ASSERT_TRUE(CheckPlan(*early, {}).has_value());
}

TEST(MemoryPlanTest, OutputsAreSwappedAfterTheirLastUser) {
  const StepPlan plan = PlanOf(UNetChain(), {{0}}, 1, "1f1b");
  StepKeeping choices = KeepAll(plan, {});
  choices[0][0][1].output = Keeping::kSwap;  // used by modules 2 and 3
  const auto moved = MoveSaved(plan, choices);
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(Moves(*moved, 0), "F0 F1 F2 F3 out*1 F4 in*1 B4 B3 B2 B1 B0");
  ASSERT_TRUE(CheckPlan(*moved, {}).has_value());
}

TEST(MemoryPlanTest, RanksThatKeepAllStayAsTheyWere) {
  const StepPlan plan = PlanOf(EvenChain(4), {{0, 2}}, 2, "1f1b");
  StepKeeping choices = KeepAll(plan, {});
  choices[1][1][0] = kDropped;
  const auto moved = MoveSaved(plan, choices);
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(moved->programs[0].instructions.size(), plan.programs[0].instructions.size());
  EXPECT_EQ(Moves(*moved, 1), "F2 F3 B3 B2 F2 drop2 F3 B3 again2 B2");
  ASSERT_TRUE(CheckPlan(*moved, {}).has_value());
}

TEST(MemoryPlanTest, PeakIsWhatStaysAndOneModule) {
  // Graphs of 400 bytes beside outputs of 100; 5,000 bytes are resident.
  const StepPlan plan = PlanOf(EvenChain(4), {{0}}, 1, "1f1b");
  const std::uint64_t resident = plan.programs[0].resident_bytes;
  const auto kept = CheckPlan(plan, {});
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->peak_bytes[0], resident + 64 + 8 + 4 * 500);
  const auto dropped = CheckPlan(MoveSaved(plan, KeepAll(plan, kDropped)).value(), {});
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->peak_bytes[0], resident + 64 + 8 + 4 * 100 + 400);
  EXPECT_EQ(dropped->peak_host_bytes[0], 0U);
}

TEST(MemoryPlanTest, ScratchCountsWhileAModuleIsComputed) {
  ModelGraph graph = EvenChain(4);
  graph.modules[1].forward_scratch_bytes = 700;
  graph.modules[2].backward_scratch_bytes = 900;
  const StepPlan plan = PlanOf(graph, {{0}}, 1, "1f1b");
  const std::uint64_t other = plan.programs[0].resident_bytes + 64 + 8;
  // Of a whole pass: in B 2, with the gradient of its output, when the graph of module 3 has gone.
  EXPECT_EQ(CheckPlan(plan, {}).value().peak_bytes[0], other + 4 * 500 + 900 + 100 - 400);
  // Module by module: in B 2, when outputs 0 to 2 are there and one graph, and the target of 8
  // bytes has ended with B 3.
  const StepPlan moved = MoveSaved(plan, KeepAll(plan, kDropped)).value();
  const std::uint64_t peak = other - 8 + 3 * 100 + 400 + 900 + 100;
  EXPECT_EQ(CheckPlan(moved, {}).value().peak_bytes[0], peak);
  const auto simulation = SimulatePlan(moved, {});
  ASSERT_TRUE(simulation.has_value());
  EXPECT_EQ(simulation->PeakBytes(), peak);
}

TEST(MemoryPlanTest, RoomForASwapIsTakenWhereItIsAskedFor) {
  // A slow link: memory is free only when the plan has waited for it, and taken before it is full.
  const StepPlan plan = PlanOf(EvenChain(6), {{0}}, 1, "1f1b");
  const StepPlan moved =
      MoveSaved(plan, KeepAll(plan, {.graph = Keeping::kSwap, .output = Keeping::kSwap})).value();
  const auto facts = CheckPlan(moved, {});
  ASSERT_TRUE(facts.has_value());
  for (const double rate : {1e-5, 1e-3, 1.0}) {
    SimulationCosts costs;
    costs.swap.bytes_per_ns = rate;
    const auto simulation = SimulatePlan(moved, costs);
    ASSERT_TRUE(simulation.has_value());
    EXPECT_EQ(simulation->PeakBytes(), facts->peak_bytes[0]) << rate;
  }
}

TEST(MemoryPlanTest, WhatCannotBeSwappedStays) {
  ModelGraph graph = EvenChain(3);
  graph.modules[1].fixed_bytes = 150;  // of 400
  const StepPlan plan = PlanOf(graph, {{0}}, 1, "1f1b");
  const auto facts =
      CheckPlan(MoveSaved(plan, KeepAll(plan, {.graph = Keeping::kSwap})).value(), {});
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->peak_host_bytes[0], 400U + 250 + 400);
  // Dropped, all of it goes.
  const auto dropped = CheckPlan(MoveSaved(plan, KeepAll(plan, kDropped)).value(), {});
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->peak_bytes[0],
            plan.programs[0].resident_bytes + 64 + 8 + 3 * 100 + 400);
}

TEST(MemoryPlanTest, AnOutputThatLeavesIsThereTwiceWhileItIsComputedAgain) {
  const StepPlan plan = PlanOf(EvenChain(2), {{0, 1}}, 1, "1f1b");
  const auto kept = CheckPlan(plan, {});
  const auto dropped = CheckPlan(MoveSaved(plan, KeepAll(plan, kDropped)).value(), {});
  ASSERT_TRUE(kept.has_value() && dropped.has_value());
  EXPECT_EQ(dropped->peak_bytes[0], kept->peak_bytes[0] + 100);
}

RandomCase MovedCase(std::mt19937_64& random) {
  RandomCase made = MakeRandomCase(random);
  while (!made.plan.trains) made = MakeRandomCase(random);
  made.plan = MoveAtRandom(random, made.plan);
  return made;
}

TEST(MemoryPlanTest, RandomChoicesPassAndSimulationStaysBelowTheBound) {
  std::mt19937_64 random(31);
  SimulationCosts costs;
  costs.swap.bytes_per_ns = 1.0;
  for (int round = 0; round < 500; ++round) {
    const RandomCase made = MovedCase(random);
    const auto facts = CheckPlan(made.plan, {});
    ASSERT_TRUE(facts.has_value()) << facts.error().ToString() << "\n" << ToText(made.plan);
    const auto simulation = SimulatePlan(made.plan, costs);
    ASSERT_TRUE(simulation.has_value());
    for (std::size_t rank = 0; rank < facts->peak_bytes.size(); ++rank) {
      EXPECT_LE(simulation->ranks[rank].peak_bytes, facts->peak_bytes[rank]);
    }
  }
}

TEST(MemoryPlanTest, EachPlanWithOneInstructionTakenOutIsRefused) {
  std::mt19937_64 random(37);
  for (int round = 0; round < 300; ++round) {
    RandomCase made = MovedCase(random);
    auto& list = made.plan.programs[random() % made.plan.programs.size()].instructions;
    const std::size_t at = random() % list.size();
    if (list[at].op == Op::kSwapEnd) continue;  // then the buffer counts for longer, no more
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_FALSE(CheckPlan(made.plan, {}).has_value()) << "round " << round;
  }
}

void ExpectRefused(const StepPlan& plan, const std::string& says) {
  const auto facts = CheckPlan(plan, {});
  ASSERT_FALSE(facts.has_value()) << "not refused, though " << says;
  EXPECT_NE(facts.error().message().find(says), std::string::npos) << facts.error().message();
}

TEST(MemoryPlanTest, TheCheckerKnowsModules) {
  const StepPlan plan = PlanOf(EvenChain(3), {{0}}, 2, "1f1b");
  const StepPlan moved = MoveSaved(plan, KeepAll(plan, kDropped)).value();
  const auto find = [](StepPlan& of, Op op, std::size_t nth) {
    auto& list = of.programs[0].instructions;
    auto at = list.begin();
    for (;; ++at) {
      if (at->op == op && nth-- == 0) return at;
    }
  };
  StepPlan order = moved;
  std::swap(find(order, Op::kBackward, 0)->module, find(order, Op::kBackward, 1)->module);
  ExpectRefused(order, "not computed in order");
  StepPlan source = moved;
  find(source, Op::kRecompute, 0)->needs.resize(1);
  ExpectRefused(source, "does not wait for all of its inputs");
  StepPlan other = moved;
  find(other, Op::kForward, 0)->makes = find(other, Op::kForward, 1)->makes;
  ExpectRefused(other, "buffer of another module");
  StepPlan value = moved;
  value.programs[0].buffers[find(value, Op::kDrop, 0)->needs.front()].kind = BufferKind::kValue;
  ExpectRefused(value, "only what is saved");
  StepPlan twice = moved;
  find(twice, Op::kForward, 2)->module = kAllModules;
  EXPECT_FALSE(CheckPlan(twice, {}).has_value());
}

TEST(MemoryPlanTest, MicroBatchesDoNotMixOnTheWayBack) {
  const StepPlan plan = PlanOf(EvenChain(2), {{0}}, 2, "gpipe");
  StepPlan moved = MoveSaved(plan, KeepAll(plan, kSwapped)).value();
  auto& list = moved.programs[0].instructions;
  const auto backward = std::ranges::find(list, Op::kBackward, &Instruction::op);
  const Instruction first = *backward;
  list.erase(backward);
  const auto last = std::find_if(list.begin(), list.end(), [](const Instruction& instruction) {
    return instruction.op == Op::kBackward && instruction.micro_batch == 1;
  });
  list.insert(last + 1, first);
  EXPECT_FALSE(CheckPlan(moved, {}).has_value());
}

TEST(MemoryPlanTest, RefusesChoicesThatDoNotFit) {
  const StepPlan plan = PlanOf(EvenChain(3), {{0}}, 2, "1f1b");
  const auto refused = [](const StepPlan& of, const StepKeeping& choices, const char* says) {
    const auto moved = MoveSaved(of, choices);
    ASSERT_FALSE(moved.has_value()) << says;
    EXPECT_EQ(moved.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(moved.error().message().find(says), std::string::npos) << moved.error().message();
  };
  refused(plan, {}, "0 ranks of 1");
  StepKeeping few = KeepAll(plan, {});
  few[0].pop_back();
  refused(plan, few, "2 micro-batches of 3 modules");
  few = KeepAll(plan, {});
  few[0][1].pop_back();
  refused(plan, few, "2 micro-batches of 3 modules");
  refused(plan, KeepAll(plan, {.output = Keeping::kRecompute}), "kept or swapped");
  const StepPlan moved = MoveSaved(plan, KeepAll(plan, kDropped)).value();
  refused(moved, KeepAll(plan, kDropped), "already");
  StepPlan evaluation = plan;
  evaluation.trains = false;
  refused(evaluation, KeepAll(plan, kDropped), "evaluation");
}

}  // namespace forebay::train::memory_plan_test
