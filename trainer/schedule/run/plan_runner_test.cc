// Plans are executed on threads by a worker that computes with integers, so that every result can
// be compared exactly, and by one that fails.
#include "trainer/schedule/run/plan_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/memory/memory_plan.h"
#include "trainer/schedule/testing/graph_fixture.h"
#include "trainer/schedule/testing/integer_worker.h"

namespace forebay::train {
namespace {

// A hang would show as a wait of this length.
constexpr std::uint64_t kPatienceNs = 20'000'000'000;

// What a step left behind, by rank.
struct Outcome {
  std::vector<Result<RankReport>> reports;
  std::vector<std::unique_ptr<IntegerWorker>> workers;
};

StepIdentity IdentityOf(const StepPlan& plan, std::uint64_t step) {
  StepIdentity identity{.step = step, .samples_hashes = {}};
  for (std::uint32_t at = 0; at < plan.micro_batches; ++at) {
    identity.samples_hashes.push_back(Mix(step, at));
  }
  return identity;
}

// Runs one step on a thread per rank. `alter` may change what a rank believes of the step.
Outcome RunOnce(const RandomCase& made,
            const std::function<void(std::uint32_t, StepIdentity&)>& alter = {}) {
  const std::uint32_t ranks = made.plan.layout.ranks();
  Outcome outcome;
  auto ends = MakeLocalTransports(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    outcome.reports.emplace_back(Error(ErrorCode::kUnknown, "did not run"));
    outcome.workers.push_back(
        std::make_unique<IntegerWorker>(made.graph, made.split, made.plan, rank));
  }
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::uint64_t clock_ns = 0;
      PlanRunner runner(made.plan, *outcome.workers[rank], *ends[rank],
                        {.timeout_ns = kPatienceNs,
                         .now_ns = [&clock_ns] { return clock_ns += 10; },
                         .traces = true});
      StepIdentity identity = IdentityOf(made.plan, 5);
      if (alter) alter(rank, identity);
      outcome.reports[rank] = runner.RunStep(identity);
      if (!outcome.reports[rank].has_value()) ends[rank]->Abort(1);
    });
  }
  threads.clear();
  return outcome;
}

void ExpectSums(const RandomCase& made, const Outcome& outcome) {
  const std::vector<double> expected =
      IntegerModel(made.graph).Gradients(made.plan.trains ? made.plan.micro_batches : 0);
  for (std::uint32_t rank = 0; rank < outcome.workers.size(); ++rank) {
    ASSERT_TRUE(outcome.reports[rank].has_value())
        << outcome.reports[rank].error().ToString() << "\n" << ToText(made.plan);
    const IntegerWorker& worker = *outcome.workers[rank];
    const std::uint32_t stage = made.plan.layout.StageOf(rank);
    const std::uint32_t end = stage + 1 < made.split.stages()
                                  ? made.split.begins[stage + 1]
                                  : static_cast<std::uint32_t>(made.graph.modules.size());
    for (std::uint32_t module = made.split.begins[stage]; module < end; ++module) {
      const bool reduced = made.plan.layout.replicas == 1 ||
                           made.plan.stages.stages[stage].parameter_bytes > 0;
      if (!reduced) continue;
      EXPECT_EQ(worker.sums()[module], expected[module]) << "module " << module;
    }
    EXPECT_EQ(worker.updates(), made.plan.trains ? 1U : 0U);
    EXPECT_TRUE(worker.empty()) << "rank " << rank << " keeps something";
  }
}

RandomCase CaseOf(const ModelGraph& graph, const StageSplit& split, std::uint32_t replicas,
                  std::uint32_t micro_batches, std::string_view schedule) {
  RandomCase made{.graph = graph, .split = split, .plan = {}};
  PlanRequest request;
  request.stages = CutIntoStages(graph, split).value();
  request.layout = {.replicas = replicas, .stages = split.stages()};
  request.micro_batches = micro_batches;
  request.schedule = FindPipelineSchedule(schedule).value();
  request.clips = true;
  made.plan = BuildPlan(request).value();
  return made;
}

TEST(PlanRunnerTest, ASkipThatBypassesAStageArrives) {
  for (const PipelineSchedule& schedule : PipelineSchedules()) {
    const RandomCase made = CaseOf(UNetChain(), {{0, 2, 3}}, 1, 4, schedule.name);
    ExpectSums(made, RunOnce(made));
  }
}

TEST(PlanRunnerTest, EveryLayoutComputesTheSame) {
  for (const std::uint32_t replicas : {1U, 2U, 4U}) {
    for (const StageSplit& split :
         {StageSplit{{0}}, StageSplit{{0, 2}}, StageSplit{{0, 1, 4}}}) {
      const RandomCase made = CaseOf(UNetChain(), split, replicas, 8, "1f1b");
      ExpectSums(made, RunOnce(made));
    }
  }
}

TEST(PlanRunnerTest, AThousandRandomPlansEnd) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 1000; ++round) {
    const RandomCase made = MakeRandomCase(random);
    ASSERT_TRUE(CheckPlan(made.plan, {}).has_value());
    ExpectSums(made, RunOnce(made));
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "round " << round;
  }
}

// Neighbours that change places wherever the checker sees no harm: schedules nobody designed.
TEST(PlanRunnerTest, WhateverTheCheckerPassesEnds) {
  std::mt19937_64 random(29);
  std::size_t moved = 0;
  for (int round = 0; round < 60; ++round) {
    RandomCase made = MakeRandomCase(random);
    for (int tries = 0; tries < 40; ++tries) {
      auto& list = made.plan.programs[random() % made.plan.programs.size()].instructions;
      const std::size_t at = random() % (list.size() - 1);
      std::swap(list[at], list[at + 1]);
      if (CheckPlan(made.plan, {}).has_value()) {
        ++moved;
      } else {
        std::swap(list[at], list[at + 1]);
      }
    }
    ExpectSums(made, RunOnce(made));
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(moved, 500U);
}

TEST(PlanRunnerTest, SwappedAndDroppedValuesComeBack) {
  for (const auto& [away, back] : {std::pair(Op::kSwapOut, Op::kSwapIn),
                                  std::pair(Op::kDrop, Op::kRecompute)}) {
    RandomCase made = CaseOf(EvenChain(3), {{0}}, 1, 2, "gpipe");
    auto& list = made.plan.programs[0].instructions;
    const auto forward = std::ranges::find(list, Op::kForward, &Instruction::op);
    const std::uint32_t saved = forward->makes.back();
    list.insert(forward + 1, {.op = away, .needs = {saved}});
    list.insert(std::ranges::find(list, Op::kBackward, &Instruction::op),
                {.op = back, .needs = {saved}});
    ASSERT_TRUE(CheckPlan(made.plan, {}).has_value());
    ExpectSums(made, RunOnce(made));
  }
}

TEST(PlanRunnerTest, MovedModulesComputeTheSame) {
  std::mt19937_64 random(41);
  for (int round = 0; round < 300; ++round) {
    RandomCase made = MakeRandomCase(random);
    if (!made.plan.trains) continue;
    made.plan = MoveAtRandom(random, made.plan);
    ASSERT_TRUE(CheckPlan(made.plan, {}).has_value());
    ExpectSums(made, RunOnce(made));
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "round " << round;
  }
}

// What it swaps in takes its time.
class SlowSwapWorker final : public IntegerWorker {
 public:
  using IntegerWorker::IntegerWorker;
  Status AwaitBack(const Buffer& buffer) override {
    ++awaited;
    clock_ns += 5000;
    return IntegerWorker::AwaitBack(buffer);
  }

  int awaited = 0;
  std::uint64_t clock_ns = 0;
};

TEST(PlanRunnerTest, WaitsForSwapsAreNotComputation) {
  const RandomCase made = CaseOf(EvenChain(3), {{0}}, 1, 2, "gpipe");
  const StepPlan plan =
      MoveSaved(made.plan, KeepAll(made.plan, {.graph = Keeping::kSwap})).value();
  SlowSwapWorker worker(made.graph, made.split, plan, 0);
  auto ends = MakeLocalTransports(1);
  PlanRunner runner(plan, worker, *ends[0], {.now_ns = [&worker] { return worker.clock_ns; }});
  const auto report = runner.RunStep(IdentityOf(plan, 0));
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  const auto swaps_in = std::ranges::count(plan.programs[0].instructions, Op::kSwapIn,
                                           &Instruction::op);
  EXPECT_GT(swaps_in, 0);
  EXPECT_EQ(worker.awaited, swaps_in);  // each once
  EXPECT_EQ(report->times.wait_swap_ns, worker.clock_ns);
  EXPECT_EQ(report->times.compute_ns, 0U);
}

TEST(PlanRunnerTest, TimesAndSpansCoverTheStep) {
  const RandomCase made = CaseOf(EvenChain(4), {{0, 2}}, 2, 4, "1f1b");
  const Outcome outcome = RunOnce(made);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const RankReport& report = *outcome.reports[rank];
    const RankTimes& times = report.times;
    EXPECT_EQ(report.spans.size(), made.plan.programs[rank].instructions.size());
    EXPECT_EQ(times.compute_ns + times.wait_message_ns + times.wait_collective_ns +
                  times.other_ns,
              report.step_ns);
    EXPECT_EQ(report.spans.back().end_ns + 10, report.step_ns);
    EXPECT_EQ(report.update_ns, 10U);
    EXPECT_EQ(report.began_ns, 10U);
  }
}

TEST(PlanRunnerTest, CountsTheBytesThatLeaveByLane) {
  const RandomCase made = CaseOf(EvenChain(2), {{0, 1}}, 2, 4, "1f1b");
  const Outcome outcome = RunOnce(made);
  const auto sent = [&](std::uint32_t rank, Lane lane) {
    return outcome.reports[rank]->sent_bytes[static_cast<std::size_t>(lane)];
  };
  const std::uint64_t activation = sent(0, Lane::kActivation);
  EXPECT_GT(activation, 0U);  // of two micro-batches, to the second stage
  EXPECT_EQ(activation % 2, 0U);
  EXPECT_EQ(sent(0, Lane::kGradient), 0U);
  EXPECT_EQ(sent(1, Lane::kActivation), 0U);
  EXPECT_GT(sent(1, Lane::kGradient), 0U);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_GT(sent(rank, Lane::kReduction), 0U);
    EXPECT_EQ(sent(rank, Lane::kControl), 0U);
  }
}

TEST(PlanRunnerTest, RanksOfDifferentStepsFindOut) {
  const RandomCase made = CaseOf(EvenChain(2), {{0, 1}}, 1, 2, "1f1b");
  const Outcome outcome = RunOnce(made, [](std::uint32_t rank, StepIdentity& identity) {
    if (rank == 1) identity.step = 6;
  });
  ASSERT_FALSE(outcome.reports[1].has_value());
  EXPECT_EQ(outcome.reports[1].error().code(), ErrorCode::kDataLoss);
  EXPECT_NE(outcome.reports[1].error().message().find("step 6, rank 1 instruction"),
            std::string::npos)
      << outcome.reports[1].error().message();
}

TEST(PlanRunnerTest, RanksOfDifferentSamplesFindOut) {
  const RandomCase made = CaseOf(EvenChain(2), {{0, 1}}, 1, 2, "1f1b");
  const Outcome outcome = RunOnce(made, [](std::uint32_t rank, StepIdentity& identity) {
    if (rank == 0) identity.samples_hashes[1] += 1;
  });
  const bool found = std::ranges::any_of(outcome.reports, [](const auto& report) {
    return !report.has_value() && report.error().code() == ErrorCode::kDataLoss;
  });
  EXPECT_TRUE(found);
}

// Fails in its second forward pass.
class FailingWorker final : public IntegerWorker {
 public:
  using IntegerWorker::IntegerWorker;
  Status Forward(std::uint32_t micro_batch, std::uint32_t module) override {
    if (micro_batch == 1) return Error(ErrorCode::kInternal, "out of luck");
    return IntegerWorker::Forward(micro_batch, module);
  }
};

TEST(PlanRunnerTest, AStageThatFailsEndsThePeersToo) {
  const RandomCase made = CaseOf(EvenChain(2), {{0, 1}}, 1, 4, "1f1b");
  auto ends = MakeLocalTransports(2);
  std::vector<Result<RankReport>> reports(2, Error(ErrorCode::kUnknown, "did not run"));
  std::array<Progress, 2> progress;
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      IntegerWorker worker(made.graph, made.split, made.plan, rank);
      FailingWorker failing(made.graph, made.split, made.plan, rank);
      StageWorker& chosen = rank == 1 ? static_cast<StageWorker&>(failing) : worker;
      PlanRunner runner(made.plan, chosen, *ends[rank],
                        {.timeout_ns = kPatienceNs,
                         .now_ns = [] { return 0ULL; },
                         .progress = &progress[rank]});
      reports[rank] = runner.RunStep(IdentityOf(made.plan, 0));
      if (!reports[rank].has_value()) ends[rank]->Abort(1);
    });
  }
  threads.clear();
  ASSERT_FALSE(reports[0].has_value() || reports[1].has_value());
  EXPECT_EQ(progress[1].Read().text, "F micro-batch 1 of stage 1");
  EXPECT_FALSE(progress[1].Read().waits);
  // Rank 0 sends to it or waits for it, as it happens.
  const Progress::Note note = progress[0].Read();
  EXPECT_EQ(note.waits, note.text.starts_with("RECV gradient")) << note.text;
  EXPECT_TRUE(note.waits || note.text.starts_with("SEND activation")) << note.text;
  EXPECT_NE(reports[1].error().message().find("(F micro-batch 1): out of luck"),
            std::string::npos)
      << reports[1].error().message();
  EXPECT_EQ(reports[0].error().code(), ErrorCode::kUnavailable);
}

// Rank 0 of a job whose messages to rank 1 take longer than those to rank 2.
class SlowToOne final : public Transport {
 public:
  std::uint32_t rank() const override { return 0; }
  std::uint32_t size() const override { return 3; }
  std::uint32_t local_size() const override { return 3; }
  std::uint32_t local_rank() const override { return 0; }
  Result<Ticket> BeginSend(std::uint32_t peer, Lane, const MessageTag&,
                           std::span<const std::byte>) override {
    return Ticket{peer};
  }
  Result<Ticket> BeginReceive(std::uint32_t, Lane, const MessageTag&,
                              std::span<std::byte>) override {
    return Error(ErrorCode::kUnimplemented, "rank 0 sends");
  }
  Result<bool> Test(Ticket ticket) override { return ticket == 2 || arrived; }
  Status AwaitAny(std::span<const Ticket>, std::uint64_t) override {
    arrived = true;
    return {};
  }
  void Abort(int) override {}

  bool arrived = false;
};

// Notes whether an output was let go while it was on its way.
class WatchedWorker final : public StageWorker {
 public:
  explicit WatchedWorker(const SlowToOne& transport) : transport_(transport) {}
  Status Feed(const Buffer&) override { return {}; }
  Status Forward(std::uint32_t, std::uint32_t) override { return {}; }
  Status Backward(std::uint32_t, std::uint32_t) override { return {}; }
  Status Update() override { return {}; }
  Result<std::span<const std::byte>> Outgoing(const Buffer&) override {
    return std::span<const std::byte>(bytes_);
  }
  Result<std::span<std::byte>> Incoming(const Buffer&) override {
    return Error(ErrorCode::kUnimplemented, "rank 0 sends");
  }
  void Release(const Buffer& buffer) override {
    if (buffer.kind != BufferKind::kOutput) return;
    ++released;
    too_early = too_early || !transport_.arrived;
  }
  Result<std::unique_ptr<PendingCollective>> MakeCollective(std::uint32_t,
                                                            const CollectiveTag&) override {
    return Error(ErrorCode::kUnimplemented, "no collectives");
  }
  Status EndCollective(std::uint32_t) override { return {}; }
  Status Move(Op, const Buffer&) override { return {}; }
  Status AwaitBack(const Buffer&) override { return {}; }

  int released = 0;
  bool too_early = false;

 private:
  const SlowToOne& transport_;
  std::array<std::byte, 8> bytes_ = {};
};

TEST(PlanRunnerTest, AnOutputStaysUntilAllItsMessagesHaveGoneOut) {
  ModelGraph graph = EvenChain(3);
  graph.skips = {{0, 2}};
  PlanRequest request;
  request.stages = CutIntoStages(graph, {{0, 1, 2}}).value();
  request.layout.stages = 3;
  request.trains = false;
  const StepPlan plan = BuildPlan(request).value();
  SlowToOne transport;
  WatchedWorker worker(transport);
  PlanRunner runner(plan, worker, transport, {.now_ns = [] { return 0ULL; }});
  ASSERT_TRUE(runner.RunStep(IdentityOf(plan, 0)).has_value());
  EXPECT_EQ(worker.released, 1);
  EXPECT_FALSE(worker.too_early);
}

}  // namespace
}  // namespace forebay::train
