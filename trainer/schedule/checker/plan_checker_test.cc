// The checker passes what the builder makes and random plans, and refuses each kind of damage with
// a message that names it.
#include "trainer/schedule/checker/plan_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train::plan_checker_test {

StepPlan PlanOf(const ModelGraph& graph, const StageSplit& split, std::uint32_t replicas,
                std::uint32_t micro_batches, std::string_view schedule) {
  PlanRequest request;
  request.stages = CutIntoStages(graph, split).value();
  request.layout = {.replicas = replicas, .stages = split.stages()};
  request.micro_batches = micro_batches;
  request.schedule = FindPipelineSchedule(schedule).value();
  request.clips = true;
  request.bucket_bytes = 1024;
  return BuildPlan(request).value();
}

// Two replicas of a U-Net in three stages.
StepPlan Hybrid(std::string_view schedule = "1f1b") {
  return PlanOf(UNetChain(), {{0, 2, 3}}, 2, 8, schedule);
}

std::size_t Find(const StepPlan& plan, std::uint32_t rank, Op op, std::size_t nth = 0) {
  const auto& list = plan.programs[rank].instructions;
  for (std::size_t at = 0; at < list.size(); ++at) {
    if (list[at].op == op && nth-- == 0) return at;
  }
  ADD_FAILURE() << "rank " << rank << " has no such " << OpName(op);
  return 0;
}

void Erase(StepPlan& plan, std::uint32_t rank, std::size_t at) {
  auto& list = plan.programs[rank].instructions;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
}

void ExpectRefused(const StepPlan& plan, const std::string& says,
                   const CheckOptions& options = {}) {
  const auto facts = CheckPlan(plan, options);
  ASSERT_FALSE(facts.has_value()) << "not refused, though " << says;
  EXPECT_NE(facts.error().message().find(says), std::string::npos) << facts.error().message();
}

TEST(PlanCheckerTest, PassesWhatTheBuilderMakes) {
  for (const PipelineSchedule& schedule : PipelineSchedules()) {
    const auto facts = CheckPlan(Hybrid(schedule.name), {});
    ASSERT_TRUE(facts.has_value()) << facts.error().message();
    EXPECT_EQ(facts->peak_bytes.size(), 6U);
  }
}

TEST(PlanCheckerTest, PassesRandomPlans) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 1000; ++round) {
    const StepPlan plan = RandomPlan(random);
    const auto facts = CheckPlan(plan, {});
    ASSERT_TRUE(facts.has_value()) << facts.error().message() << "\n" << ToText(plan);
  }
}

TEST(PlanCheckerTest, OneForwardOneBackwardHoldsFewerMicroBatches) {
  const auto gpipe = CheckPlan(PlanOf(EvenChain(4), {{0, 2}}, 1, 16, "gpipe"), {});
  const auto alternating = CheckPlan(PlanOf(EvenChain(4), {{0, 2}}, 1, 16, "1f1b"), {});
  ASSERT_TRUE(gpipe.has_value() && alternating.has_value());
  // Of the first stage: 16 against 2 saved, besides what is resident.
  EXPECT_GE(gpipe->peak_bytes[0] - alternating->peak_bytes[0], 14U * 1000);
}

TEST(PlanCheckerTest, RefusesMissingEnds) {
  StepPlan unreceived = Hybrid();
  Erase(unreceived, 0, Find(unreceived, 0, Op::kSend, 3));
  ExpectRefused(unreceived, "the order of messages differs");
  StepPlan last = PlanOf(EvenChain(2), {{0, 1}}, 1, 1, "gpipe");
  Erase(last, 0, Find(last, 0, Op::kSend));
  ExpectRefused(last, "nobody sends it");
  StepPlan lost = PlanOf(EvenChain(2), {{0, 1}}, 1, 1, "gpipe");
  const std::size_t receive = Find(lost, 0, Op::kReceive);
  Instruction again = lost.programs[1].instructions[Find(lost, 1, Op::kSend)];
  lost.programs[1].instructions.insert(
      lost.programs[1].instructions.begin() +
          static_cast<std::ptrdiff_t>(Find(lost, 1, Op::kSend)),
      again);
  ASSERT_GT(receive, 0U);
  ExpectRefused(lost, "nobody receives it");
}

TEST(PlanCheckerTest, RefusesSwappedMessages) {
  StepPlan plan = Hybrid("gpipe");
  auto& list = plan.programs[1].instructions;
  std::swap(list[Find(plan, 1, Op::kReceive, 0)], list[Find(plan, 1, Op::kReceive, 1)]);
  ExpectRefused(plan, "the order of messages differs");
}

TEST(PlanCheckerTest, RefusesMixedUpMicroBatches) {
  StepPlan plan = Hybrid();
  plan.programs[0].instructions[Find(plan, 0, Op::kSend)].micro_batch += 1;
  ExpectRefused(plan, "of another edge, micro-batch or size");
  StepPlan foreign = Hybrid();
  foreign.programs[0].instructions[Find(foreign, 0, Op::kFeed)].micro_batch = 7;
  ExpectRefused(foreign, "not its own");
}

TEST(PlanCheckerTest, RefusesRanksThatWaitForEachOther) {
  // Rank 0 wants the gradient of micro-batch 0 before it sends the activation of it.
  StepPlan plan = PlanOf(EvenChain(2), {{0, 1}}, 1, 2, "1f1b");
  auto& list = plan.programs[0].instructions;
  const std::size_t receive = Find(plan, 0, Op::kReceive);
  const std::size_t send = Find(plan, 0, Op::kSend);
  ASSERT_LT(send, receive);
  std::rotate(list.begin() + static_cast<std::ptrdiff_t>(send),
              list.begin() + static_cast<std::ptrdiff_t>(receive),
              list.begin() + static_cast<std::ptrdiff_t>(receive) + 1);
  ExpectRefused(plan, "wait for each other");
}

TEST(PlanCheckerTest, FindsTheHangOfWaitingSends) {
  // Stage 0 sends an activation while stage 1 sends it a gradient: harmless as long as sends do
  // not wait, fatal where they do.
  const StepPlan plan = PlanOf(EvenChain(2), {{0, 1}}, 1, 4, "1f1b");
  EXPECT_TRUE(CheckPlan(plan, {}).has_value());
  ExpectRefused(plan, "wait for each other", {.sends_wait = true});
}

TEST(PlanCheckerTest, GpipeStandsWaitingSends) {
  const StepPlan plan = PlanOf(EvenChain(2), {{0, 1}}, 1, 4, "gpipe");
  EXPECT_TRUE(CheckPlan(plan, {.sends_wait = true}).has_value());
}

TEST(PlanCheckerTest, RefusesCollectivesInAnotherOrder) {
  StepPlan plan = Hybrid();
  auto& list = plan.programs[0].instructions;
  std::swap(list[Find(plan, 0, Op::kCollectiveBegin, 0)],
            list[Find(plan, 0, Op::kCollectiveBegin, 1)]);
  ExpectRefused(plan, "in the same order");
}

TEST(PlanCheckerTest, RefusesCollectivesThatHalfOfTheMembersBegin) {
  StepPlan plan = Hybrid();
  Erase(plan, 0, Find(plan, 0, Op::kCollectiveEnd));
  ExpectRefused(plan, "still under way");
  StepPlan absent = Hybrid();
  const std::uint32_t id =
      absent.programs[0].instructions[Find(absent, 0, Op::kCollectiveBegin)].collective;
  std::erase_if(absent.programs[0].instructions, [id](const Instruction& instruction) {
    return (instruction.op == Op::kCollectiveBegin || instruction.op == Op::kCollectiveEnd) &&
           instruction.collective == id;
  });
  ExpectRefused(absent, "in the same order");
  StepPlan twice = Hybrid();
  auto& list = twice.programs[0].instructions;
  const std::size_t at = Find(twice, 0, Op::kCollectiveBegin);
  const Instruction begin = list[at];
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), begin);
  ExpectRefused(twice, "for the second time");
  StepPlan unbegun = Hybrid();
  Erase(unbegun, 0, Find(unbegun, 0, Op::kCollectiveBegin));
  ExpectRefused(unbegun, "has not begun");
  StepPlan stranger = Hybrid();
  stranger.programs[1].instructions[Find(stranger, 1, Op::kCollectiveBegin)].collective = 0;
  ExpectRefused(stranger, "no member");
}

TEST(PlanCheckerTest, RefusesCollectivesThatWaitCrosswise) {
  // Two groups with two members in common, begun in opposite orders: the hang of communicators
  // on several streams. Those who share them must agree on the order.
  StepPlan plan = PlanOf(EvenChain(1), {{0}}, 2, 2, "gpipe");
  plan.collectives.push_back(
      {.kind = CollectiveKind::kStatistics, .members = {0, 1}, .bytes = 8});
  const auto id = static_cast<std::uint32_t>(plan.collectives.size() - 1);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto& list = plan.programs[rank].instructions;
    const std::size_t begin = Find(plan, rank, Op::kCollectiveBegin);
    const auto at = list.begin() + static_cast<std::ptrdiff_t>(begin + rank);
    list.insert(at, {.op = Op::kCollectiveBegin, .collective = id});
    list.insert(list.end() - 1, {.op = Op::kCollectiveEnd, .collective = id});
  }
  ExpectRefused(plan, "in the same order");
}

TEST(PlanCheckerTest, RefusesWorkLeftOutOrDoneTwice) {
  StepPlan skipped = Hybrid();
  Erase(skipped, 2, Find(skipped, 2, Op::kBackward));
  ExpectRefused(skipped, "0 times backward");
  StepPlan idle = Hybrid();
  Erase(idle, 4, Find(idle, 4, Op::kUpdate));
  ExpectRefused(idle, "0 updates");
  StepPlan late = Hybrid();
  auto& list = late.programs[3].instructions;
  std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size()) - 1,
              list.end());
  ExpectRefused(late, "after the update");
}

TEST(PlanCheckerTest, RefusesSumsThatBeginTooEarly) {
  StepPlan early = Hybrid();
  auto& list = early.programs[0].instructions;
  const std::size_t begin = Find(early, 0, Op::kCollectiveBegin);
  std::swap(list[begin], list[begin - 1]);
  ASSERT_EQ(list[begin].op, Op::kBackward);
  ExpectRefused(early, "before the last backward pass");
  StepPlan norms = Hybrid();
  auto& other = norms.programs[0].instructions;
  const auto update = static_cast<std::size_t>(
      std::ranges::find(other, Op::kUpdate, &Instruction::op) - other.begin());
  // ..., END gradients, BEGIN norms, END norms, STEP.
  std::swap(other[update - 3], other[update - 2]);
  ExpectRefused(norms, "before the gradients are summed");
}

TEST(PlanCheckerTest, RefusesInputsThatAreNotWaitedFor) {
  StepPlan plan = Hybrid();
  plan.programs[2].instructions[Find(plan, 2, Op::kForward)].needs.pop_back();
  ExpectRefused(plan, "all of its inputs");
  StepPlan backward = Hybrid();
  auto& needs = backward.programs[0].instructions[Find(backward, 0, Op::kBackward)].needs;
  std::erase_if(needs, [&](std::uint32_t buffer) {
    return backward.programs[0].buffers[buffer].kind == BufferKind::kArrivedGradient;
  });
  ExpectRefused(backward, "all of its gradients");
}

TEST(PlanCheckerTest, RefusesBuffersThatAreNotThere) {
  StepPlan early = PlanOf(EvenChain(2), {{0, 1}}, 1, 2, "gpipe");
  auto& list = early.programs[1].instructions;
  std::swap(list[Find(early, 1, Op::kReceive)], list[Find(early, 1, Op::kForward)]);
  ExpectRefused(early, "a buffer it needs is not there");
  StepPlan leaking = Hybrid();
  leaking.programs[1].instructions[Find(leaking, 1, Op::kBackward)].frees.pop_back();
  ExpectRefused(leaking, "outlives the step");
  StepPlan twice = Hybrid();
  auto& freed = twice.programs[1].instructions[Find(twice, 1, Op::kForward)].frees;
  freed = twice.programs[1].instructions[Find(twice, 1, Op::kForward)].needs;
  ExpectRefused(twice, "is not there");
}

TEST(PlanCheckerTest, RefusesIndicesOutOfRange) {
  StepPlan buffer = Hybrid();
  buffer.programs[0].instructions[Find(buffer, 0, Op::kForward)].needs.push_back(9999);
  ExpectRefused(buffer, "no such buffer");
  StepPlan edge = Hybrid();
  edge.programs[0].instructions[Find(edge, 0, Op::kSend)].edge = 9999;
  ExpectRefused(edge, "no such edge");
  StepPlan collective = Hybrid();
  collective.programs[0].instructions[Find(collective, 0, Op::kCollectiveBegin)].collective = 99;
  ExpectRefused(collective, "no such collective");
  StepPlan peer = Hybrid();
  peer.programs[0].instructions[Find(peer, 0, Op::kSend)].peer = 5;
  ExpectRefused(peer, "does not lead between");
  StepPlan shape = Hybrid();
  shape.programs.pop_back();
  ExpectRefused(shape, "5 programs");
  StepPlan backward = Hybrid();
  backward.stages.edges[0].to_stage = 0;
  ExpectRefused(backward, "an edge leads from stage");
  StepPlan members = Hybrid();
  members.collectives[0].members = {3, 0};
  ExpectRefused(members, "ascending");
}

// Saved buffer 0 of a one-stage plan, moved and brought back between forward and backward.
StepPlan WithMoves(Op away, Op back) {
  StepPlan plan = PlanOf(EvenChain(2), {{0}}, 1, 2, "gpipe");
  auto& list = plan.programs[0].instructions;
  const std::uint32_t saved = list[Find(plan, 0, Op::kForward)].makes.back();
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(Find(plan, 0, Op::kForward)) + 1,
              {.op = away, .needs = {saved}});
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(Find(plan, 0, Op::kBackward)),
              {.op = back, .needs = {saved}});
  return plan;
}

// The host's copy of a buffer is there until its way back has ended, which is where it is used: a
// buffer that leaves meanwhile finds it there.
TEST(PlanCheckerTest, ABufferIsOnTheHostUntilItIsUsedAgain) {
  StepPlan plan = PlanOf(EvenChain(2), {{0}}, 1, 2, "gpipe");
  auto& list = plan.programs[0].instructions;
  const auto forward = list.begin() + static_cast<std::ptrdiff_t>(Find(plan, 0, Op::kForward));
  const std::uint32_t first = forward->makes.back();
  const auto next = std::find_if(forward + 1, list.end(), [](const Instruction& instruction) {
    return instruction.op == Op::kForward;
  });
  ASSERT_NE(next, list.end());
  const std::uint32_t second = next->makes.back();
  list.insert(next + 1, {{.op = Op::kSwapOut, .needs = {first}},
                         {.op = Op::kSwapEnd, .needs = {first}},
                         {.op = Op::kSwapIn, .needs = {first}},
                         {.op = Op::kSwapOut, .needs = {second}},
                         {.op = Op::kSwapEnd, .needs = {second}},
                         {.op = Op::kSwapIn, .needs = {second}}});
  const auto facts = CheckPlan(plan, {});
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_EQ(facts->peak_host_bytes[0], 2000U);
}

TEST(PlanCheckerTest, SwappedAndDroppedBuffersComeBack) {
  const auto kept = CheckPlan(PlanOf(EvenChain(2), {{0}}, 1, 2, "gpipe"), {});
  const auto swapped = CheckPlan(WithMoves(Op::kSwapOut, Op::kSwapIn), {});
  const auto dropped = CheckPlan(WithMoves(Op::kDrop, Op::kRecompute), {});
  ASSERT_TRUE(kept.has_value() && swapped.has_value() && dropped.has_value());
  EXPECT_EQ(swapped->peak_host_bytes[0], 1000U);
  EXPECT_EQ(dropped->peak_host_bytes[0], 0U);
  EXPECT_EQ(kept->peak_bytes[0], swapped->peak_bytes[0]);  // both are back for backward
}

TEST(PlanCheckerTest, RefusesMovesThatDoNotPair) {
  ExpectRefused(WithMoves(Op::kSwapOut, Op::kRecompute), "in another state");
  ExpectRefused(WithMoves(Op::kDrop, Op::kSwapIn), "in another state");
  StepPlan gone = WithMoves(Op::kSwapOut, Op::kSwapIn);
  Erase(gone, 0, Find(gone, 0, Op::kSwapIn));
  ExpectRefused(gone, "a buffer it needs is not there");
  StepPlan input = WithMoves(Op::kSwapOut, Op::kSwapIn);
  auto& list = input.programs[0].instructions;
  list[Find(input, 0, Op::kSwapOut)].needs = list[Find(input, 0, Op::kFeed)].makes;
  ExpectRefused(input, "only what is saved");
}

TEST(PlanCheckerTest, TheBudgetIsOfEachRank) {
  const StepPlan plan = Hybrid();
  const auto facts = CheckPlan(plan, {});
  ASSERT_TRUE(facts.has_value());
  const std::uint64_t most = *std::ranges::max_element(facts->peak_bytes);
  EXPECT_TRUE(CheckPlan(plan, {.budget_bytes = most}).has_value());
  const auto over = CheckPlan(plan, {.budget_bytes = most - 1});
  ASSERT_FALSE(over.has_value());
  EXPECT_EQ(over.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(over.error().message().find(std::to_string(most)), std::string::npos);
}

// All buckets are under way at once, and each holds what arrives of the other replicas.
TEST(PlanCheckerTest, ReductionsTakeTheOtherReplicasShare) {
  PlanRequest request;
  request.stages = CutIntoStages(EvenChain(4), {{0}}).value();
  request.stages.stages[0].saved_bytes = 0;
  request.stages.input_bytes = request.stages.target_bytes = 0;
  request.bucket_bytes = 400;
  for (const std::uint32_t replicas : {1U, 2U, 4U}) {
    request.layout = {.replicas = replicas, .stages = 1};
    request.micro_batches = replicas;
    const StepPlan plan = BuildPlan(request).value();
    const std::uint64_t arriving = 4000 / replicas * (replicas - 1);
    const auto facts = CheckPlan(plan, {});
    ASSERT_TRUE(facts.has_value()) << facts.error().message();
    for (std::uint32_t rank = 0; rank < replicas; ++rank) {
      EXPECT_EQ(facts->peak_bytes[rank], plan.programs[rank].resident_bytes + arriving);
    }
    EXPECT_EQ(SimulatePlan(plan, {})->ranks[0].peak_bytes, facts->peak_bytes[0]);
  }
}

TEST(PlanCheckerTest, RefusesReductionsWithoutRoom) {
  PlanRequest request;
  request.stages = CutIntoStages(EvenChain(4), {{0}}).value();
  request.layout = {.replicas = 2, .stages = 1};
  request.micro_batches = 2;
  StepPlan plan = BuildPlan(request).value();
  plan.programs[1].instructions[Find(plan, 1, Op::kCollectiveBegin)].makes.clear();
  plan.programs[1].instructions[Find(plan, 1, Op::kCollectiveEnd)].frees.clear();
  ExpectRefused(plan, "makes no room");
}

TEST(PlanCheckerTest, RefusesRandomDamage) {
  // Whatever instruction is taken out of whatever plan: a hole is found.
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    StepPlan plan = RandomPlan(random);
    const auto rank = static_cast<std::uint32_t>(random() % plan.programs.size());
    Erase(plan, rank, random() % plan.programs[rank].instructions.size());
    EXPECT_FALSE(CheckPlan(plan, {}).has_value()) << "round " << round;
  }
}

}  // namespace forebay::train::plan_checker_test
