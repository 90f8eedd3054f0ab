// The figure of the quickstart without its daemon: accuracy on the real test images.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/comm/communicator.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/core/machine/thread_plan.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/testing/configured_engine.h"
#include "trainer/testing/memory_feed.h"
#include "trainer/testing/sample_set.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train::fashion_mnist_test {

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

TEST(FashionMnist, ReachesNinetyPercentOnTheTestImages) {
  const testing::TempFolder folder;
  const std::optional<testing::SampleSet> training =
      testing::LoadFashionMnist(false, folder.path());
  const std::optional<testing::SampleSet> validation =
      testing::LoadFashionMnist(true, folder.path());
  if (!training || !validation) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  ASSERT_EQ(training->size(), 60'000U);
  ASSERT_EQ(validation->size(), 10'000U);

  TrainConfig config;
  // For trying out settings: FOREBAY_TRAIN_SET="train.epochs=3 run.threads=1".
  if (const char* settings = std::getenv("FOREBAY_TRAIN_SET")) {
    std::string rest = settings;
    while (!rest.empty()) {
      const std::size_t space = std::min(rest.find(' '), rest.size());
      const std::string word = rest.substr(0, space);
      rest.erase(0, space + 1);
      const std::size_t equals = word.find('=');
      ASSERT_NE(equals, std::string::npos);
      const Status set =
          SetConfigValue(config, word.substr(0, equals), word.substr(equals + 1));
      ASSERT_TRUE(set.has_value()) << set.error().ToString();
    }
  }
  const std::uint32_t threads = PlanThreads(
      MeasureThreadFacts(static_cast<std::uint32_t>(config.run.threads), /*local_ranks=*/1));
  ASSERT_TRUE(SetTorchThreads(threads).has_value());
  Communicator communicator = Communicator::Alone();
  auto engine = testing::MakeEngine(config, communicator);
  ASSERT_TRUE(engine.has_value()) << engine.error().ToString();
  testing::MemoryFeedProbe probe;
  testing::MemorySource source(
      {.global_batch = static_cast<std::uint32_t>(config.train.global_batch),
       .validation_batch = 500,
       .seed = 1},
      *training, *validation, probe);
  const Result<TrainingReport> report =
      RunTraining(config, {.engine = **engine,
                           .communicator = communicator,
                           .feeds = source,
                           .stop_requested = [] { return false; },
                           .now_ns = NowNs,
                           .print = [](const std::string& line) { std::puts(line.c_str()); }});
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  std::puts(ClosingTable(*report).c_str());
  ASSERT_FALSE(report->evaluations.empty());
  EXPECT_EQ(report->evaluations.back().samples, 10'000U);
  EXPECT_GE(report->evaluations.back().score, 0.90);
}

}  // namespace forebay::train::fashion_mnist_test
