// Runs under mpirun with two ranks: the same training on one rank and on all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/transport/mpi_transport.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/testing/configured_engine.h"
#include "trainer/testing/memory_feed.h"
#include "trainer/testing/sample_set.h"

namespace forebay::train {
namespace {

std::optional<Communicator>& World() {
  static std::optional<Communicator> world;
  return world;
}

struct Trained {
  TrainingReport report;
  Checkpoint weights;
};

Result<Trained> TrainOn(Communicator& communicator, std::uint64_t stop_after = UINT64_MAX) {
  TrainConfig config;
  config.model.settings = "channels=4,hidden=16";
  config.train.epochs = 2;
  config.train.global_batch = 32;
  config.train.learning_rate = 0.02;
  const testing::SampleSet training = testing::MakeBars(328, 1);
  const testing::SampleSet validation = testing::MakeBars(65, 2);
  testing::MemoryFeedProbe probe;
  testing::MemorySource source({.global_batch = 32,
                                .validation_batch = 32,
                                .seed = 1},
                               training, validation, probe);
  FOREBAY_ASSIGN(const std::unique_ptr<Engine> engine,
                 testing::MakeEngine(config, communicator));
  std::uint64_t clock_ns = 0;
  std::uint64_t asked = 0;
  // Only the last rank hears of the signal.
  const bool hears = communicator.rank() + 1 == communicator.size();
  Trained trained;
  FOREBAY_ASSIGN(trained.report,
                 RunTraining(config, {.engine = *engine,
                                      .communicator = communicator,
                                      .feeds = source,
                                      .stop_requested =
                                          [&] { return ++asked >= stop_after && hears; },
                                      .now_ns = [&] { return clock_ns += 1000; },
                                      .print = [](const std::string&) {}}));
  FOREBAY_TRY(engine->Save(trained.weights));
  return trained;
}

std::vector<float> Values(const Checkpoint& checkpoint) {
  std::vector<float> values;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::size_t at = values.size();
    values.resize(at + tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data() + at, tensor.bytes.data(), tensor.bytes.size());
  }
  return values;
}

TEST(DataParallel, EveryRankEndsWithTheSameWeights) {
  const auto trained = TrainOn(*World());
  ASSERT_TRUE(trained.has_value()) << trained.error().ToString();
  const std::uint64_t mine = trained->report.weights_digest;
  std::uint64_t leaders = mine;
  ASSERT_TRUE(
      World()->Broadcast(std::as_writable_bytes(std::span(&leaders, 1)), 0).has_value());
  EXPECT_EQ(mine, leaders);
}

TEST(DataParallel, RepeatsBitForBit) {
  const auto first = TrainOn(*World());
  const auto second = TrainOn(*World());
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->report.last_loss, second->report.last_loss);
  EXPECT_EQ(first->weights, second->weights);
}

TEST(DataParallel, EqualsOneRankUpToRounding) {
  const auto many = TrainOn(*World());
  Communicator alone = Communicator::Alone();
  const auto one = TrainOn(alone);
  ASSERT_TRUE(many.has_value() && one.has_value());
  EXPECT_EQ(many->report.samples, one->report.samples);
  // The first replica writes checkpoints.
  EXPECT_EQ(many->weights.tensors.empty(), World()->rank() != 0);
  if (World()->rank() != 0) return;
  EXPECT_NEAR(many->report.last_loss, one->report.last_loss, 1e-3);
  const std::vector<float> weights = Values(many->weights);
  const std::vector<float> expected = Values(one->weights);
  ASSERT_EQ(weights.size(), expected.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    difference += std::pow(double{weights[i]} - double{expected[i]}, 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 1e-3);
}

// 65 samples in steps of 32: the last step has one sample, and the second rank none.
TEST(DataParallel, EvaluationCoversEverySampleOnce) {
  const auto trained = TrainOn(*World());
  ASSERT_TRUE(trained.has_value());
  ASSERT_EQ(trained->report.evaluations.size(), 2U);
  EXPECT_EQ(trained->report.evaluations[1].samples, 65U);
}

TEST(DataParallel, SignalOnOneRankStopsAllAfterTheSameStep) {
  const auto trained = TrainOn(*World(), /*stop_after=*/7);
  ASSERT_TRUE(trained.has_value()) << trained.error().ToString();
  EXPECT_FALSE(trained->report.completed);
  EXPECT_EQ(trained->report.steps, 7U);
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto world = forebay::train::MakeMpiTransport();
  if (!world.has_value()) return 1;
  forebay::train::World().emplace(*std::move(world));
  if (!forebay::train::SetTorchThreads(1).has_value()) return 1;
  const int failed = RUN_ALL_TESTS();
  forebay::train::World().reset();
  return failed;
}
