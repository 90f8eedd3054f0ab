// Plans for single layouts, compared with lists of instructions that are written out here.
#include "trainer/schedule/plan_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train {
namespace {

PlanRequest RequestOf(const ModelGraph& graph, const StageSplit& split,
                      std::uint32_t micro_batches, std::string_view schedule) {
  PlanRequest request;
  request.stages = CutIntoStages(graph, split).value();
  request.layout.stages = split.stages();
  request.micro_batches = micro_batches;
  request.schedule = FindPipelineSchedule(schedule).value();
  return request;
}

// "F0 F1 B0 F2 ..." of one rank.
std::string Computation(const StepPlan& plan, std::uint32_t rank) {
  std::string text;
  for (const Instruction& instruction : plan.programs[rank].instructions) {
    if (instruction.op != Op::kForward && instruction.op != Op::kBackward) continue;
    text += (text.empty() ? "" : " ") + std::string(OpName(instruction.op)) +
            std::to_string(instruction.micro_batch);
  }
  return text;
}

std::size_t Count(const StepPlan& plan, std::uint32_t rank, Op op) {
  return static_cast<std::size_t>(
      std::ranges::count(plan.programs[rank].instructions, op, &Instruction::op));
}

TEST(PlanBuilderTest, GpipeComputesAllForwardFirst) {
  const auto plan = BuildPlan(RequestOf(EvenChain(4), {{0, 2}}, 3, "gpipe"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Computation(*plan, 0), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(Computation(*plan, 1), "F0 F1 F2 B0 B1 B2");
}

TEST(PlanBuilderTest, OneForwardOneBackwardWarmsUpByDepth) {
  const auto plan = BuildPlan(RequestOf(EvenChain(4), {{0, 1, 2}}, 4, "1f1b"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Computation(*plan, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(Computation(*plan, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Computation(*plan, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(PlanBuilderTest, FewerMicroBatchesThanStages) {
  const auto plan = BuildPlan(RequestOf(EvenChain(4), {{0, 1, 2, 3}}, 2, "1f1b"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Computation(*plan, 0), "F0 F1 B0 B1");
  EXPECT_TRUE(CheckPlan(*plan, {}).has_value());
}

TEST(PlanBuilderTest, OneProcessHasNeitherMessagesNorCollectives) {
  PlanRequest request = RequestOf(UNetChain(), {{0}}, 3, "1f1b");
  request.clips = true;
  const auto plan = BuildPlan(request);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Computation(*plan, 0), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(Count(*plan, 0, Op::kSend) + Count(*plan, 0, Op::kReceive), 0U);
  EXPECT_TRUE(plan->collectives.empty());
  EXPECT_EQ(Count(*plan, 0, Op::kUpdate), 1U);
}

TEST(PlanBuilderTest, ReplicasTakeContiguousMicroBatchesAndReduceInBuckets) {
  PlanRequest request = RequestOf(EvenChain(4), {{0, 2}}, 4, "1f1b");
  request.layout.replicas = 2;
  request.bucket_bytes = 800;
  const auto plan = BuildPlan(request);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Computation(*plan, 0), "F0 F1 B0 B1");
  EXPECT_EQ(Computation(*plan, 3), "F2 B2 F3 B3");
  // 2,000 bytes of parameters in each stage: 800 + 800 + 400.
  EXPECT_EQ(plan->collectives.size(), 6U);
  EXPECT_EQ(plan->collectives[2].bytes, 400U);
  EXPECT_EQ(plan->collectives[0].members, (std::vector<std::uint32_t>{0, 2}));
}

TEST(PlanBuilderTest, StatisticsAreGatheredOverTheReplicasOfAStage) {
  ModelGraph graph = EvenChain(2);
  graph.modules[1].statistics_bytes = 24;
  PlanRequest request = RequestOf(graph, {{0, 1}}, 4, "gpipe");
  request.layout.replicas = 2;
  const auto plan = BuildPlan(request);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->collectives.size(), 3U);  // gradients of two stages, statistics of one
  EXPECT_EQ(plan->collectives[2].kind, CollectiveKind::kStatistics);
  EXPECT_EQ(plan->collectives[2].bytes, 24U * 4);
}

TEST(PlanBuilderTest, ClippingGathersNormsOverTheStagesOfEachReplica) {
  PlanRequest request = RequestOf(EvenChain(4), {{0, 2}}, 4, "1f1b");
  request.layout.replicas = 2;
  request.clips = true;
  const auto plan = BuildPlan(request);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->collectives.size(), 4U);
  EXPECT_EQ(plan->collectives[3].kind, CollectiveKind::kNorms);
  EXPECT_EQ(plan->collectives[3].members, (std::vector<std::uint32_t>{2, 3}));
}

TEST(PlanBuilderTest, EvaluationIsForwardOnly) {
  PlanRequest request = RequestOf(UNetChain(), {{0, 2, 3}}, 4, "1f1b");
  request.trains = false;
  const auto plan = BuildPlan(request);
  ASSERT_TRUE(plan.has_value());
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Computation(*plan, rank), "F0 F1 F2 F3");
    EXPECT_EQ(Count(*plan, rank, Op::kUpdate), 0U);
  }
  EXPECT_TRUE(CheckPlan(*plan, {}).has_value());
}

TEST(PlanBuilderTest, OnlyFirstAndLastStageAreFed) {
  const auto plan = BuildPlan(RequestOf(EvenChain(3), {{0, 1, 2}}, 4, "1f1b"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Count(*plan, 0, Op::kFeed), 4U);
  EXPECT_EQ(Count(*plan, 1, Op::kFeed), 0U);
  EXPECT_EQ(Count(*plan, 2, Op::kFeed), 4U);
}

TEST(PlanBuilderTest, AnOutputSentTwiceIsOnePieceOfMemory) {
  ModelGraph graph = EvenChain(3);
  graph.skips = {{0, 2}};
  const auto plan = BuildPlan(RequestOf(graph, {{0, 1, 2}}, 1, "1f1b"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(std::ranges::count(plan->programs[0].buffers, BufferKind::kOutput, &Buffer::kind), 1);
  EXPECT_EQ(Count(*plan, 0, Op::kSend), 2U);
}

TEST(PlanBuilderTest, ResidentBytesCountTheTreeOfGradients) {
  EXPECT_EQ(GradientBuffers(1), 1U);
  EXPECT_EQ(GradientBuffers(2), 2U);
  EXPECT_EQ(GradientBuffers(8), 4U);
  const auto plan = BuildPlan(RequestOf(EvenChain(4), {{0}}, 8, "gpipe"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->programs[0].resident_bytes, 4000U * (1 + 1 + 4));
}

TEST(PlanBuilderTest, RefusesWhatDoesNotFit) {
  struct Case {
    std::uint32_t replicas;
    std::uint32_t stages;
    std::uint32_t micro_batches;
    std::uint64_t bucket_bytes;
    std::string says;
  };
  for (const Case& bad : {Case{0, 2, 4, 8, "at least 1"}, Case{1, 2, 0, 8, "at least 1"},
                          Case{1, 3, 4, 8, "cut into 2"}, Case{3, 2, 4, 8, "do not divide"},
                          Case{2, 2, 6, 8, "power of two"}, Case{1, 2, 4, 0, "0 bytes"}}) {
    PlanRequest request = RequestOf(EvenChain(4), {{0, 2}}, 4, "1f1b");
    request.layout = {.replicas = bad.replicas, .stages = bad.stages};
    request.micro_batches = bad.micro_batches;
    request.bucket_bytes = bad.bucket_bytes;
    const auto plan = BuildPlan(request);
    ASSERT_FALSE(plan.has_value()) << bad.says;
    EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(plan.error().message().find(bad.says), std::string::npos)
        << plan.error().message();
  }
}

}  // namespace
}  // namespace forebay::train
