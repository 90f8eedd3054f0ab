// The engine in a whole training loop over made-up images: it learns, resumes bit for bit, refuses
// foreign checkpoints, and reports what is not finite.
#include "trainer/exec/torch_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/core/loop/evaluate_checkpoint.h"
#include "trainer/testing/configured_engine.h"
#include "trainer/testing/run_fixture.h"
#include "trainer/testing/stored_checkpoint.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;
using testing::RunFixture;

class TorchEngineTest : public ::testing::Test {
 protected:
  TorchEngineTest() {
    run_.config.model.settings = "channels=4,hidden=16";
    run_.config.train.learning_rate = 0.02;
  }

  std::unique_ptr<Engine> Build() {
    auto engine = testing::MakeEngine(run_.config, run_.communicator);
    EXPECT_TRUE(engine.has_value()) << engine.error().ToString();
    return *std::move(engine);
  }

  // One batch of the first `samples` training images.
  FeedBatch BatchOf(std::uint64_t samples) {
    FeedBatch batch;
    batch.sample_count = static_cast<std::uint32_t>(samples);
    batch.input = {run_.training.images.data(), samples * testing::kImageBytes, Dtype::kU8,
                   {samples, 28, 28}};
    batch.target = {run_.training.labels.data(), samples, Dtype::kU8, {samples}};
    batch.hold = std::make_shared<int>(0);
    return batch;
  }

  CheckpointReader Stored(const Checkpoint& checkpoint) {
    auto stored = testing::Store(checkpoint, run_.folder.path() / "stored");
    EXPECT_TRUE(stored.has_value()) << stored.error().ToString();
    return *std::move(stored);
  }

  RunFixture run_;
};

TEST_F(TorchEngineTest, LossFallsAndTheBarsAreLearnt) {
  run_.config.train.epochs = 8;
  const auto report = run_.Run(*Build());
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  const auto curve = run_.LossCurve();
  EXPECT_GT(curve.at(0), 2.0);  // ln 10, for guessing
  EXPECT_LT(report->last_loss, 0.5);
  EXPECT_GT(report->evaluations.back().score, 0.9);
}

// In batches of another size, by an engine that has been made for the evaluation alone.
TEST_F(TorchEngineTest, AnEvaluationOfTheCheckpointHasTheFiguresOfTheRun) {
  const auto report = run_.Run(*Build());
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  const auto manifest = ReadManifest(report->checkpoint);
  ASSERT_TRUE(manifest.has_value());
  const auto config = ConfigForEvaluation(manifest->state, report->checkpoint);
  ASSERT_TRUE(config.has_value()) << config.error().ToString();
  for (const std::uint32_t batch : {7U, 32U, 70U}) {
    auto engine = testing::MakeEngine(*config, run_.communicator);
    ASSERT_TRUE(engine.has_value()) << engine.error().ToString();
    testing::MemoryFeedProbe probe;
    testing::MemorySource source({.global_batch = 32, .validation_batch = batch, .seed = 1},
                                 run_.training, run_.validation, probe);
    const auto done =
        EvaluateCheckpoint(report->checkpoint, {.engine = **engine,
                                                .communicator = run_.communicator,
                                                .feeds = source,
                                                .stop_requested = [] { return false; },
                                                .now_ns = [this] { return run_.clock_ns += 9; },
                                                .print = [](const std::string&) {}});
    ASSERT_TRUE(done.has_value()) << done.error().ToString();
    EXPECT_EQ(done->figures.samples, 70U);
    EXPECT_EQ(done->figures.score, report->evaluations.back().score) << batch;
    EXPECT_NEAR(done->figures.loss, report->evaluations.back().loss, 1e-5) << batch;
  }
}

TEST_F(TorchEngineTest, ResumeMidEpochIsBitIdentical) {
  ASSERT_TRUE(run_.Run(*Build()).has_value());
  const auto whole_curve = run_.LossCurve();
  const auto newest = testing::ReadWhole(
      std::filesystem::path(run_.config.checkpoint.checkpoint_dir) / "step-000000000030");
  ASSERT_TRUE(newest.has_value());

  RunFixture resumed;
  resumed.config.model = run_.config.model;
  resumed.config.train = run_.config.train;
  resumed.stop_after_steps = 14;
  auto first = testing::MakeEngine(resumed.config, resumed.communicator);
  const auto stopped = resumed.Run(**first);
  ASSERT_TRUE(stopped.has_value()) << stopped.error().ToString();
  ASSERT_FALSE(stopped->completed);
  resumed.stop_after_steps = UINT64_MAX;
  resumed.config.checkpoint.resume = "auto";
  auto second = testing::MakeEngine(resumed.config, resumed.communicator);
  const auto report = resumed.Run(**second);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_EQ(report->first_global_step, 14U);
  EXPECT_EQ(resumed.LossCurve(), whole_curve);
  const auto same = testing::ReadWhole(report->checkpoint);
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->tensors, newest->tensors);
  EXPECT_EQ(same->best, newest->best);
  EXPECT_EQ(same->position_token, newest->position_token);
}

TEST_F(TorchEngineTest, SeedDecidesTheWeights) {
  Checkpoint first;
  Checkpoint same;
  Checkpoint other;
  ASSERT_TRUE(Build()->Save(first).has_value());
  ASSERT_TRUE(Build()->Save(same).has_value());
  run_.config.train.seed = 2;
  ASSERT_TRUE(Build()->Save(other).has_value());
  EXPECT_EQ(first.tensors, same.tensors);
  EXPECT_NE(first.tensors, other.tensors);
}

TEST_F(TorchEngineTest, CheckpointHoldsNamedWeightsAndMomentum) {
  Checkpoint checkpoint;
  ASSERT_TRUE(Build()->Save(checkpoint).has_value());
  const CheckpointTensor* const weight = checkpoint.Find("conv1.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<std::uint64_t>{4, 1, 5, 5}));
  EXPECT_NE(checkpoint.Find("conv1.weight/momentum"), nullptr);
  EXPECT_EQ(checkpoint.optimiser_states, std::vector<std::string>{"momentum"});
}

TEST_F(TorchEngineTest, BatchIsGivenBackOnceConverted) {
  const auto engine = Build();
  FeedBatch batch = BatchOf(8);
  const std::weak_ptr<const void> held = batch.hold;
  ASSERT_TRUE(engine->TrainStep(batch, 0.01).has_value());
  EXPECT_TRUE(held.expired());
}

TEST_F(TorchEngineTest, EmptyEvaluationBatchCountsNothing) {
  FeedBatch batch = BatchOf(0);
  const auto outcome = Build()->EvaluateStep(batch);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->samples, 0U);
  EXPECT_EQ(outcome->loss_sum, 0);
}

TEST_F(TorchEngineTest, TrainingLeavesTheFeedsBytesAlone) {
  const testing::SampleSet before = run_.training;
  FeedBatch batch = BatchOf(8);
  ASSERT_TRUE(Build()->TrainStep(batch, 0.01).has_value());
  EXPECT_EQ(run_.training.images, before.images);
  EXPECT_EQ(run_.training.labels, before.labels);
}

TEST_F(TorchEngineTest, CheckpointOfAnotherModelIsRefusedNamingBoth) {
  Checkpoint checkpoint;
  ASSERT_TRUE(Build()->Save(checkpoint).has_value());
  run_.config.model.settings = "channels=8,hidden=16";
  const Status loaded = Build()->Load(Stored(checkpoint));
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(loaded.error().message(), HasSubstr("channels 4"));
  EXPECT_THAT(loaded.error().message(), HasSubstr("channels 8"));
}

TEST_F(TorchEngineTest, CheckpointWithoutAStateLeavesTheEngineAsItWas) {
  const auto engine = Build();
  FeedBatch batch = BatchOf(8);
  Checkpoint checkpoint;
  ASSERT_TRUE(engine->Save(checkpoint).has_value());
  ASSERT_TRUE(engine->TrainStep(batch, 0.01).has_value());
  Checkpoint before;
  ASSERT_TRUE(engine->Save(before).has_value());
  checkpoint.tensors.pop_back();
  const Status loaded = engine->Load(Stored(checkpoint));
  ASSERT_FALSE(loaded.has_value());
  EXPECT_THAT(loaded.error().message(), HasSubstr("/momentum"));
  Checkpoint after;
  ASSERT_TRUE(engine->Save(after).has_value());
  EXPECT_EQ(before.tensors, after.tensors);
}

TEST_F(TorchEngineTest, ImagesOfAnotherShapeAreRefused) {
  FeedBatch batch = BatchOf(8);
  batch.input.shape = {8, 14, 28};
  batch.input.bytes = 8 * 14 * 28;
  const auto outcome = Build()->TrainStep(batch, 0.01);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kFailedPrecondition);
}

TEST_F(TorchEngineTest, BytesThatDoNotFitTheShapeAreDataLoss) {
  FeedBatch batch = BatchOf(8);
  --batch.input.bytes;
  const auto outcome = Build()->TrainStep(batch, 0.01);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kDataLoss);
}

TEST_F(TorchEngineTest, LabelBeyondTheClassesIsAnErrorNotACrash) {
  run_.training.labels[3] = std::byte{200};
  FeedBatch batch = BatchOf(8);
  const auto outcome = Build()->TrainStep(batch, 0.01);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message(), HasSubstr("training step"));
}

TEST_F(TorchEngineTest, StepThatIsNotFiniteIsLeftOutWhereAskedTo) {
  run_.config.train.nan_policy = "skip";
  const auto engine = Build();
  FeedBatch batch = BatchOf(8);
  ASSERT_TRUE(engine->TrainStep(batch, 1e30).has_value());
  const std::uint64_t before = engine->Digest().value();
  batch = BatchOf(8);
  const auto outcome = engine->TrainStep(batch, 0.01);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().ToString();
  EXPECT_TRUE(outcome->skipped);
  EXPECT_EQ(outcome->not_finite, std::vector<std::uint32_t>{0});
  EXPECT_EQ(engine->Digest().value(), before);
}

// The loss of a step may be finite and its gradient not: the weights stay as they were.
TEST_F(TorchEngineTest, GradientThatIsNotFiniteEndsTheRunBeforeTheUpdate) {
  const auto engine = Build();
  Checkpoint large;
  ASSERT_TRUE(engine->Save(large).has_value());
  // The first layer makes small what the others make large: the way back meets the large ones
  // first.
  bool is_first = true;
  for (CheckpointTensor& tensor : large.tensors) {
    if (tensor.name.find('/') != std::string::npos) continue;
    const bool is_bias = tensor.name.ends_with("bias");
    const float factor = is_bias ? 0.0F : is_first ? 1e-25F : 1e17F;
    is_first = is_first && is_bias;
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    for (float& value : values) value *= factor;
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  }
  ASSERT_TRUE(engine->Load(Stored(large)).has_value());
  const std::uint64_t before = engine->Digest().value();
  FeedBatch batch = BatchOf(8);
  const auto outcome = engine->TrainStep(batch, 0.01);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().ToString();
  EXPECT_TRUE(std::isfinite(outcome->loss_sum));
  EXPECT_TRUE(outcome->skipped);
  EXPECT_EQ(engine->Digest().value(), before);
}

TEST_F(TorchEngineTest, RunEndsOrGoesOnWhereALossIsNotFinite) {
  run_.config.train.learning_rate = 1e30;
  const auto ended = run_.Run(*Build());
  ASSERT_FALSE(ended.has_value());
  EXPECT_THAT(ended.error().message(), HasSubstr("micro-batch 0 (positions"));
  run_.config.train.nan_policy = "skip";
  const auto report = run_.Run(*Build());
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_GT(report->skipped_steps, 0U);
  EXPECT_EQ(report->steps, 30U);
}

TEST_F(TorchEngineTest, CheckpointOfAnotherIdentityIsRefusedUnlessForced) {
  Checkpoint checkpoint;
  ASSERT_TRUE(Build()->Save(checkpoint).has_value());
  EXPECT_THAT(checkpoint.identity, HasSubstr("micro_batch=32 library=LibTorch"));
  checkpoint.identity = "threads=99";
  const Status loaded = Build()->Load(Stored(checkpoint));
  ASSERT_FALSE(loaded.has_value());
  EXPECT_THAT(loaded.error().message(), HasSubstr("threads=99"));
  EXPECT_THAT(loaded.error().message(), HasSubstr("force_identity"));
  run_.config.checkpoint.force_identity = true;
  EXPECT_TRUE(Build()->Load(Stored(checkpoint)).has_value());
}

TEST_F(TorchEngineTest, OpaqueBytesAreRefused) {
  FeedBatch batch = BatchOf(8);
  batch.input.dtype = Dtype::kBytes;
  const auto outcome = Build()->TrainStep(batch, 0.01);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kUnimplemented);
}

TEST(TorchBlasProbe, FindsALibraryAndItsRate) {
  const auto facts = MakeTorchBlasProbe()->Measure();
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_GT(facts->gemm_gflops, 0.0);
}

}  // namespace
}  // namespace forebay::train
