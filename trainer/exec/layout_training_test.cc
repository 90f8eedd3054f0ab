// Runs under mpirun with two ranks: whole runs under several layouts, over feeds in memory. All
// end in the same weights, which is the promise that forebay-train makes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/transport/mpi_transport.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/testing/configured_engine.h"
#include "trainer/testing/memory_feed.h"
#include "trainer/testing/sample_set.h"
#include "trainer/testing/stored_checkpoint.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

std::optional<Communicator>& World() {
  static std::optional<Communicator> world;
  return world;
}

// Ten steps of 32 samples an epoch and a tail of 8; micro-batches of 8.
TrainConfig ConfigOf(std::int64_t stages, const std::string& switches = "") {
  TrainConfig config;
  config.model.settings = "channels=4,hidden=16";
  config.train.epochs = 2;
  config.train.global_batch = 32;
  config.train.learning_rate = 0.02;
  config.train.warmup_steps = 5;
  config.layout.stages = stages;
  config.layout.micro_batch = 8;
  config.layout.switches = switches;
  return config;
}

struct Trained {
  TrainingReport report;
  testing::MemoryFeedProbe probe;  // of this rank
};

Result<Trained> TrainOn(Communicator& communicator, const TrainConfig& config,
                        std::uint64_t stop_after = UINT64_MAX) {
  const testing::SampleSet training = testing::MakeBars(328, 1);
  const testing::SampleSet validation = testing::MakeBars(65, 2);
  Trained trained;
  testing::MemorySource source({.global_batch = 32, .validation_batch = 32, .seed = 1}, training,
                               validation, trained.probe);
  FOREBAY_ASSIGN(const std::unique_ptr<Engine> engine,
                 testing::MakeEngine(config, communicator));
  std::uint64_t clock_ns = 0;
  std::uint64_t asked = 0;
  FOREBAY_ASSIGN(trained.report,
                 RunTraining(config, {.engine = *engine,
                                      .communicator = communicator,
                                      .feeds = source,
                                      .stop_requested = [&] { return ++asked >= stop_after; },
                                      .now_ns = [&] { return clock_ns += 1000; },
                                      .print = [](const std::string&) {}}));
  return trained;
}

// One process of one rank, as it would be without mpirun.
const Trained& Alone() {
  static const Trained alone = [] {
    Communicator single = Communicator::Alone();
    return TrainOn(single, ConfigOf(1)).value();
  }();
  return alone;
}

void ExpectAsAlone(const Result<Trained>& trained) {
  ASSERT_TRUE(trained.has_value()) << trained.error().ToString();
  const TrainingReport& report = trained->report;
  EXPECT_TRUE(report.completed);
  EXPECT_EQ(report.weights_digest, Alone().report.weights_digest);
  EXPECT_EQ(report.samples, Alone().report.samples);
  ASSERT_EQ(report.evaluations.size(), 2U);
  EXPECT_EQ(report.evaluations[1].samples, 65U);
  EXPECT_EQ(report.evaluations[1].score, Alone().report.evaluations[1].score);
  EXPECT_NEAR(report.evaluations[1].loss, Alone().report.evaluations[1].loss, 1e-6);
}

TEST(LayoutTraining, TwoReplicasEndInTheWeightsOfOneProcess) {
  const auto trained = TrainOn(*World(), ConfigOf(1));
  ExpectAsAlone(trained);
  ASSERT_EQ(trained->probe.opened.size(), 1U);
  EXPECT_EQ(trained->probe.opened[0].replicas, 2U);
  EXPECT_EQ(trained->probe.trained.size(), 320U);  // half of 640
}

TEST(LayoutTraining, TwoStagesEndInTheWeightsOfOneProcess) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    TrainConfig config = ConfigOf(2);
    config.layout.pipeline_schedule = schedule;
    const auto trained = TrainOn(*World(), config);
    ExpectAsAlone(trained);
    // Both ranks have every sample: one its input, the other its target.
    ASSERT_EQ(trained->probe.opened.size(), 1U);
    EXPECT_EQ(trained->probe.opened[0].input, World()->rank() == 0);
    EXPECT_EQ(trained->probe.opened[0].target, World()->rank() == 1);
    EXPECT_EQ(trained->probe.trained, Alone().probe.trained);
  }
}

TEST(LayoutTraining, ExplicitCutEndsInTheSameWeights) {
  TrainConfig config = ConfigOf(2);
  config.layout.split = "0,1";
  ExpectAsAlone(TrainOn(*World(), config));
}

TEST(LayoutTraining, ClippedAdamWEndsInTheSameWeights) {
  TrainConfig config = ConfigOf(2);
  config.train.optimiser = "adamw";
  config.train.learning_rate = 0.002;
  config.train.clip_norm = 0.5;
  config.train.label_smoothing = 0.1;
  const auto stages = TrainOn(*World(), config);
  config.layout.stages = 1;
  Communicator single = Communicator::Alone();
  const auto alone = TrainOn(single, config);
  ASSERT_TRUE(stages.has_value() && alone.has_value());
  EXPECT_EQ(stages->report.weights_digest, alone->report.weights_digest);
  EXPECT_NE(alone->report.weights_digest, Alone().report.weights_digest);
}

// All stages leave out the same steps.
TEST(LayoutTraining, StepsThatAreNotFiniteAreLeftOutEverywhere) {
  TrainConfig config = ConfigOf(2);
  config.train.learning_rate = 1e30;
  config.train.nan_policy = "skip";
  const auto stages = TrainOn(*World(), config);
  config.layout.stages = 1;
  Communicator single = Communicator::Alone();
  const auto alone = TrainOn(single, config);
  ASSERT_TRUE(stages.has_value()) << stages.error().ToString();
  ASSERT_TRUE(alone.has_value()) << alone.error().ToString();
  EXPECT_GT(stages->report.skipped_steps, 0U);
  EXPECT_EQ(stages->report.skipped_steps, alone->report.skipped_steps);
  EXPECT_EQ(stages->report.weights_digest, alone->report.weights_digest);
  config.layout.stages = 2;
  config.train.nan_policy = "stop";
  const auto ended = TrainOn(*World(), config);
  ASSERT_FALSE(ended.has_value());
  EXPECT_NE(ended.error().message().find("not finite, micro-batch"), std::string::npos);
}

// Within an epoch, at its end, and back: every sample is trained on once per epoch.
TEST(LayoutTraining, SwitchingRunEndsInTheWeightsOfOneProcess) {
  const auto trained = TrainOn(*World(), ConfigOf(1, "step 4: 1x2; epoch 1: 2x1; step 17: 1x2"));
  ExpectAsAlone(trained);
  EXPECT_EQ(trained->report.switches, 3U);
  EXPECT_EQ(trained->report.layout, (Layout{.replicas = 1, .stages = 2}));
  if (World()->rank() != 0) return;
  // Rank 0: shares of 16 in replicas, all 32 of a step as first stage.
  EXPECT_EQ(trained->probe.opened.size(), 4U);
  EXPECT_EQ(trained->probe.trained.size(), 4U * 16 + 6 * 32 + 7 * 16 + 3 * 32);
}

// A folder that both ranks know.
std::string SharedFolder(const testing::TempFolder& own) {
  std::vector<std::byte> text(512);
  const std::string path = own.path().string();
  std::memcpy(text.data(), path.data(), path.size());
  EXPECT_TRUE(World()->Broadcast(text, 0).has_value());
  return reinterpret_cast<const char*>(text.data());
}

TEST(LayoutTraining, ResumesOnAnotherLayoutBitForBit) {
  const testing::TempFolder own;
  TrainConfig config = ConfigOf(2);
  config.checkpoint.checkpoint_dir = SharedFolder(own) + "/checkpoints";
  const auto stopped = TrainOn(*World(), config, /*stop_after=*/7);
  ASSERT_TRUE(stopped.has_value()) << stopped.error().ToString();
  EXPECT_FALSE(stopped->report.completed);
  config.checkpoint.resume = "auto";
  config.layout.stages = 1;
  // Evaluations after step 10 ask for signals three times, too.
  const auto resumed = TrainOn(*World(), config, /*stop_after=*/9);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->report.first_global_step, 7U);
  config.layout.stages = 2;
  const auto ended = TrainOn(*World(), config);
  ASSERT_TRUE(ended.has_value()) << ended.error().ToString();
  EXPECT_EQ(ended->report.first_global_step, 13U);
  EXPECT_EQ(ended->report.weights_digest, Alone().report.weights_digest);
  ASSERT_TRUE(World()->Barrier().has_value());  // the folder is rank 0's
}

// Rank 0 alone looks into the folder, and no rank waits for one that has ended.
TEST(LayoutTraining, AUsedFolderIsRefusedOnEveryRank) {
  const testing::TempFolder own;
  TrainConfig config = ConfigOf(2);
  config.checkpoint.checkpoint_dir = SharedFolder(own) + "/used";
  ASSERT_TRUE(TrainOn(*World(), config, /*stop_after=*/7).has_value());
  const auto again = TrainOn(*World(), config);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), ErrorCode::kAlreadyExists);
  config.checkpoint.new_run = true;
  EXPECT_TRUE(TrainOn(*World(), config, /*stop_after=*/3).has_value());
  ASSERT_TRUE(World()->Barrier().has_value());  // the folder is rank 0's
}

TEST(LayoutTraining, CheckpointsAreTheSameUnderEveryLayout) {
  const testing::TempFolder own;
  std::vector<Checkpoint> stored;
  for (const std::int64_t stages : {1, 2}) {
    TrainConfig config = ConfigOf(stages);
    config.checkpoint.checkpoint_dir = SharedFolder(own) + "/" + std::to_string(stages);
    const auto trained = TrainOn(*World(), config);
    ASSERT_TRUE(trained.has_value()) << trained.error().ToString();
    if (World()->rank() != 0) continue;
    const auto manifest = ReadManifest(trained->report.checkpoint);
    ASSERT_TRUE(manifest.has_value()) << manifest.error().ToString();
    EXPECT_EQ(manifest->shards.size(), static_cast<std::size_t>(stages));
    const auto checkpoint = testing::ReadWhole(trained->report.checkpoint);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().ToString();
    stored.push_back(*checkpoint);
  }
  if (World()->rank() != 0) return;
  EXPECT_EQ(stored[0].tensors, stored[1].tensors);
  EXPECT_EQ(stored[0].position_token, stored[1].position_token);
  EXPECT_EQ(stored[0].identity, stored[1].identity);
}

TEST(LayoutTraining, OtherMicroBatchesAreRefusedUnlessForced) {
  const testing::TempFolder own;
  TrainConfig config = ConfigOf(2);
  config.checkpoint.checkpoint_dir = SharedFolder(own) + "/checkpoints";
  ASSERT_TRUE(TrainOn(*World(), config, /*stop_after=*/3).has_value());
  config.checkpoint.resume = "auto";
  config.layout.micro_batch = 16;
  const auto refused = TrainOn(*World(), config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message().find("micro_batch=8"), std::string::npos);
  EXPECT_NE(refused.error().message().find("micro_batch=16"), std::string::npos);
  config.checkpoint.force_identity = true;
  const auto forced = TrainOn(*World(), config);
  EXPECT_TRUE(forced.has_value()) << forced.error().ToString();
  ASSERT_TRUE(World()->Barrier().has_value());
}

TEST(LayoutTraining, MicroBatchesThatFollowTheLayoutChangeTheWeights) {
  const testing::TempFolder own;
  TrainConfig config = ConfigOf(2);
  config.layout.micro_batches = "per_layout";
  config.checkpoint.checkpoint_dir = SharedFolder(own) + "/per_layout";
  // A pipeline of canonical micro-batches is what it was.
  ExpectAsAlone(TrainOn(*World(), config));
  config.layout.stages = 1;
  config.checkpoint.resume = "auto";
  const auto refused = TrainOn(*World(), config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("layouts=[layout.micro_batches: 1 x 2 of 8]"),
            std::string::npos)
      << refused.error().message();
  config.checkpoint = {};
  const auto replicated = TrainOn(*World(), config);
  ASSERT_TRUE(replicated.has_value()) << replicated.error().ToString();
  EXPECT_NE(replicated->report.weights_digest, Alone().report.weights_digest);
  config.layout.switches = "epoch 1: 1x2";
  const auto switched = TrainOn(*World(), config);
  ASSERT_TRUE(switched.has_value()) << switched.error().ToString();
  EXPECT_EQ(switched->report.switches, 1U);
  EXPECT_NE(switched->report.weights_digest, replicated->report.weights_digest);
  EXPECT_EQ(switched->report.evaluations[0].loss, replicated->report.evaluations[0].loss);
  ASSERT_TRUE(World()->Barrier().has_value());
}

TEST(LayoutTraining, CutsBeyondTheModelAreRefusedBeforeAnyFeedOpens) {
  TrainConfig config = ConfigOf(2);
  config.layout.split = "0,4";
  const auto refused = TrainOn(*World(), config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("layout.split"), std::string::npos);
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
