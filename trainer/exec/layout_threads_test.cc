// Whole runs on four ranks that are threads: pipelines with stages in the middle, which have no
// stream, and layouts that mix both kinds of parallelism.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/transport/local_transport.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/core/report/run_record.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/testing/configured_engine.h"
#include "trainer/testing/memory_feed.h"
#include "trainer/testing/sample_set.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train::layout_threads_test {

constexpr std::uint64_t kPatienceNs = 60'000'000'000;

TrainConfig ConfigOf(std::int64_t stages, const std::string& switches = "") {
  TrainConfig config;
  config.model.settings = "channels=4,hidden=16";
  config.train.epochs = 2;
  config.train.global_batch = 32;
  config.train.learning_rate = 0.02;
  config.layout.stages = stages;
  config.layout.micro_batch = 4;
  config.layout.switches = switches;
  return config;
}

struct Trained {
  TrainingReport report;
  testing::MemoryFeedProbe probe;
  std::string decided;  // on rank 0
};

Result<Trained> TrainRank(const TrainConfig& config, std::unique_ptr<Transport> transport) {
  Communicator communicator(std::move(transport), kPatienceNs);
  const testing::SampleSet training = testing::MakeBars(328, 1);
  const testing::SampleSet validation = testing::MakeBars(65, 2);
  Trained trained;
  testing::MemorySource source({.global_batch = 32, .validation_batch = 32, .seed = 1}, training,
                               validation, trained.probe);
  FOREBAY_ASSIGN(const std::unique_ptr<Engine> engine,
                 testing::MakeEngine(config, communicator,
                                     [&](const std::string& line) { trained.decided = line; }));
  std::uint64_t clock_ns = 0;
  FOREBAY_ASSIGN(trained.report,
                 RunTraining(config, {.engine = *engine,
                                      .communicator = communicator,
                                      .feeds = source,
                                      .stop_requested = [] { return false; },
                                      .now_ns = [&] { return clock_ns += 1000; },
                                      .print = [](const std::string&) {}}));
  return trained;
}

// By rank. OpenMP counts threads for each thread, so each rank sets its own.
std::vector<Trained> Train(std::uint32_t ranks, const TrainConfig& config) {
  auto ends = MakeLocalTransports(ranks);
  std::vector<Result<Trained>> results(ranks, Error(ErrorCode::kUnknown, "did not run"));
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_TRUE(SetTorchThreads(1).has_value());
      results[rank] = TrainRank(config, std::move(ends[rank]));
    });
  }
  threads.clear();
  std::vector<Trained> trained;
  for (Result<Trained>& result : results) {
    EXPECT_TRUE(result.has_value()) << result.error().ToString();
    trained.push_back(result.has_value() ? *std::move(result) : Trained{});
  }
  return trained;
}

class LayoutThreads : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(SetTorchThreads(1).has_value()); }
};

TEST_F(LayoutThreads, FourRanksEndInTheWeightsOfOne) {
  const Trained alone = std::move(Train(1, ConfigOf(1)).front());
  for (const TrainConfig& config :
       {ConfigOf(4), ConfigOf(2), ConfigOf(4, "step 3: 2x2; epoch 1: 4x1; step 15: 1x4")}) {
    const std::vector<Trained> trained = Train(4, config);
    for (const Trained& rank : trained) {
      EXPECT_EQ(rank.report.weights_digest, alone.report.weights_digest);
      ASSERT_EQ(rank.report.evaluations.size(), 2U);
      EXPECT_EQ(rank.report.evaluations[1].samples, 65U);
    }
  }
}

TEST_F(LayoutThreads, StagesInTheMiddleOpenNoStream) {
  const std::vector<Trained> trained = Train(4, ConfigOf(4));
  ASSERT_EQ(trained[0].probe.opened.size(), 1U);
  ASSERT_EQ(trained[3].probe.opened.size(), 1U);
  EXPECT_TRUE(trained[0].probe.opened.front().input);
  EXPECT_TRUE(trained[1].probe.opened.empty() && trained[2].probe.opened.empty());
  EXPECT_TRUE(trained[1].probe.validated.empty());
  EXPECT_TRUE(trained[3].probe.opened.front().target);
  EXPECT_EQ(trained[0].probe.trained, trained[3].probe.trained);
  // A step's samples in order: each is trained on once per epoch.
  EXPECT_EQ(trained[0].probe.trained.size(), 640U);
}

// Large enough for saved values to be worth a transfer.
TrainConfig LargerConfigOf(std::int64_t stages, const MemoryConfig& memory) {
  TrainConfig config = ConfigOf(stages);
  config.model.settings = "channels=16,hidden=16";
  config.train.epochs = 1;
  config.layout.micro_batch = 8;
  config.memory = memory;
  return config;
}

TEST_F(LayoutThreads, MemoryThatIsSavedDoesNotChangeTheWeights) {
  const std::uint64_t digest = Train(1, LargerConfigOf(1, {})).front().report.weights_digest;
  const auto expect_same = [&](std::uint32_t ranks, const TrainConfig& config,
                               const std::vector<std::string>& words) {
    const std::vector<Trained> trained = Train(ranks, config);
    for (const Trained& rank : trained) EXPECT_EQ(rank.report.weights_digest, digest);
    for (const std::string& word : words) {
      EXPECT_NE(trained[0].decided.find(word), std::string::npos) << trained[0].decided;
    }
  };
  expect_same(1, LargerConfigOf(1, {.policy = "swap"}), {"layout 1 x 1", "swapped"});
  expect_same(2, LargerConfigOf(2, {.policy = "recompute"}), {"layout 1 x 2", "computed again"});
  TrainConfig switches = LargerConfigOf(2, {.budget = "2MB"});
  switches.layout.switches = "step 3: 2x1; step 7: 1x2";
  expect_same(2, switches, {"layout 1 x 2: budget", "layout 2 x 1: budget", " modules"});
}

TEST_F(LayoutThreads, BudgetThatIsTooSmallNamesTheLeastThatWouldDo) {
  Communicator communicator = Communicator::Alone();
  const auto engine = testing::MakeEngine(LargerConfigOf(1, {.budget = "100KB"}), communicator);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(engine.error().ToString().find("memory.budget, layout 1 x 1"), std::string::npos)
      << engine.error().ToString();
  EXPECT_NE(engine.error().ToString().find("still needs"), std::string::npos);
}

std::vector<std::string> EngineErrors(const TrainConfig& config) {
  auto ends = MakeLocalTransports(2);
  std::vector<std::string> errors(2);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_TRUE(SetTorchThreads(1).has_value());
        Communicator communicator(std::move(ends[rank]), kPatienceNs);
        const auto engine = testing::MakeEngine(config, communicator);
        if (!engine.has_value()) errors[rank] = engine.error().ToString();
      });
    }
  }
  return errors;
}

// The cut that is fastest, before the second convolution, is not the one that needs least.
TEST_F(LayoutThreads, AnAutomaticCutMeetsTheBudgetThatAnyCutMeets) {
  const auto config_of = [](const std::string& split, std::uint64_t budget) {
    TrainConfig config = LargerConfigOf(2, {.budget = std::to_string(budget)});
    config.model.settings = "channels=32,hidden=64";
    config.layout.split = split;
    return config;
  };
  std::uint64_t least = UINT64_MAX;
  std::string text;
  for (const char* const split : {"0,1", "0,2", "0,3"}) {
    const std::string error = EngineErrors(config_of(split, 1000)).front();
    const std::size_t at = error.find("still needs ");
    ASSERT_NE(at, std::string::npos) << error;
    text += std::string(split) + ": " + error.substr(at + 12) + "\n";
    least = std::min<std::uint64_t>(least, std::stoull(error.substr(at + 12)));
  }
  EXPECT_EQ(EngineErrors(config_of("auto", least)).front(), "") << text;
  EXPECT_NE(EngineErrors(config_of("auto", least - 1)).front(), "") << text;
}

// 20 steps on 2 x 2 ranks, then on 1 x 4.
TEST_F(LayoutThreads, EveryRankTellsWhereItsTimeWentUnderEachLayout) {
  const testing::TempFolder folder;
  TrainConfig config = ConfigOf(2, "epoch 1: 1x4");
  config.run.metrics_dir = folder.path();
  config.run.trace_file = folder.path() / "trace.json";
  config.run.trace_steps = "9-10";  // the last one of the first layout, the first of the second
  const std::vector<Trained> trained = Train(4, config);
  const auto run = ReadRun(folder.path());
  ASSERT_TRUE(run.has_value()) << run.error().ToString();
  EXPECT_EQ(run->steps.size(), 20U);
  EXPECT_EQ(run->evaluations.size(), 2U);
  ASSERT_EQ(run->ranks.size(), 4U);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const RecordedRank& recorded = run->ranks[rank];
    EXPECT_EQ(recorded.rank, rank);
    EXPECT_EQ(recorded.stages, 4U);  // of the last layout
    EXPECT_GT(recorded.predicted_step_ns, 0);
    EXPECT_GT(recorded.predicted_bubble, 0.1);  // 3 / (8 + 3), were stages and links ideal
    EXPECT_GT(recorded.planned_bytes[0], 0U);
    ASSERT_EQ(recorded.steps.size(), 20U);
    for (const auto& [step, account] : recorded.steps) {
      EXPECT_GT(account.at(TimeClass::kCompute), 0U);
      EXPECT_GT(account.at(TimeClass::kOptimiser), 0U);
      EXPECT_GT(account.plan_ns, account.UsefulNs());
      EXPECT_GT(account.peak_bytes, 0U);
      const bool sends = step < 10 ? rank % 2 == 0 : rank < 3;
      const bool receives = step < 10 ? rank % 2 == 1 : rank > 0;
      EXPECT_EQ(account.at(ByteChannel::kActivation) > 0, sends) << step;
      EXPECT_EQ(account.at(ByteChannel::kGradient) > 0, receives) << step;
      EXPECT_EQ(account.at(ByteChannel::kReduction) > 0, step < 10) << step;
    }
    EXPECT_GT(trained[0].report.rank_totals.at(rank).flops, 0);
    EXPECT_EQ(trained[0].report.rank_totals[rank].steps, 20U);
  }
  std::ifstream file(config.run.trace_file);
  const std::string trace(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(trace.find("\"step\":9}"), std::string::npos);
  EXPECT_NE(trace.find("\"step\":10}"), std::string::npos);
  EXPECT_EQ(trace.find("\"step\":11}"), std::string::npos);
}

TEST_F(LayoutThreads, ARangeOfTracedStepsThatIsNoneIsRefused) {
  TrainConfig config = ConfigOf(1);
  config.run.trace_file = "/tmp/never-written.json";
  config.run.trace_steps = "12-10";
  Communicator alone = Communicator::Alone();
  const auto engine = testing::MakeEngine(config, alone);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(engine.error().message().find("run.trace_steps"), std::string::npos);
}

}  // namespace forebay::train::layout_threads_test
