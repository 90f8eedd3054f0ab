// The loop and RunTraining over feeds in memory and a scripted engine, without LibTorch.
#include "trainer/core/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "trainer/core/checkpoint_folder.h"
#include "trainer/core/checkpoint_reader.h"
#include "trainer/core/run_record.h"
#include "trainer/core/run_training.h"
#include "trainer/testing/run_fixture.h"
#include "trainer/testing/scripted_engine.h"

namespace forebay::train {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::RunFixture;
using testing::ScriptedEngine;

TEST(TrainingLoop, TrainsEveryEpochAndEvaluatesEverySampleOnce) {
  RunFixture run;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_TRUE(report->completed);
  EXPECT_EQ(report->steps, 30U);
  EXPECT_EQ(report->samples, 960U);
  ASSERT_EQ(report->evaluations.size(), 3U);
  EXPECT_EQ(report->evaluations[2].epoch, 2U);
  EXPECT_EQ(report->evaluations[2].samples, 70U);
  EXPECT_EQ(run.probe.finished, 2U);
  std::ranges::sort(run.probe.validated);
  ASSERT_EQ(run.probe.validated.size(), 210U);
  for (std::uint64_t i = 0; i < 210; ++i) EXPECT_EQ(run.probe.validated[i], i / 3);
  EXPECT_EQ(run.LossCurve().size(), 30U);
  EXPECT_THAT(report->checkpoint, HasSubstr("step-000000000030"));
  EXPECT_THAT(run.printed, Contains(HasSubstr("epoch 3/3 test accuracy")));
  EXPECT_THAT(run.printed, Contains(HasSubstr("epoch 1/3 weights digest")));
  EXPECT_NE(report->weights_digest, 0U);
}

TEST(TrainingLoop, StallIsTheTimeInsideNext) {
  RunFixture run;
  run.config.evaluation.evaluate_every_epochs = 0;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value());
  // The clock ticks once per look: each step is one tick of waiting and one of work.
  EXPECT_EQ(report->wait_ns, 30U * 1000);
  EXPECT_EQ(report->train_ns, 60U * 1000);
  EXPECT_EQ(report->first_wait_ns, 1000U);
  EXPECT_TRUE(report->evaluations.empty());
}

// Wherever a run stops, the resumed one makes the same losses and sees the same samples.
TEST(TrainingLoop, ResumedRunHasTheLossCurveOfAnUninterruptedOne) {
  RunFixture whole;
  ScriptedEngine whole_engine;
  ASSERT_TRUE(whole.Run(whole_engine).has_value());
  for (const std::uint64_t stop : {1U, 7U, 10U, 11U, 20U, 29U}) {
    RunFixture run;
    run.stop_after_steps = stop;
    ScriptedEngine first_engine;
    const auto first = run.Run(first_engine);
    ASSERT_TRUE(first.has_value()) << first.error().ToString();
    EXPECT_FALSE(first->completed);
    EXPECT_EQ(first->steps, stop);
    run.stop_after_steps = UINT64_MAX;
    run.config.checkpoint.resume = "auto";
    ScriptedEngine second_engine;
    const auto second = run.Run(second_engine);
    ASSERT_TRUE(second.has_value()) << second.error().ToString();
    EXPECT_TRUE(second->completed);
    EXPECT_EQ(second->first_global_step, stop);
    EXPECT_EQ(run.LossCurve(), whole.LossCurve()) << stop;
    EXPECT_EQ(run.probe.trained, whole.probe.trained) << stop;
    // A stop right after an epoch leaves its evaluation to the next run: none is lost.
    EXPECT_EQ(first->evaluations.size() + second->evaluations.size(), 3U) << stop;
  }
}

TEST(TrainingLoop, StopAfterTheVeryLastStepStillGetsItsEvaluation) {
  RunFixture run;
  run.stop_after_steps = 30;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  EXPECT_FALSE(stopped->completed);
  EXPECT_EQ(stopped->evaluations.size(), 2U);
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = UINT64_MAX;
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_TRUE(resumed->completed);
  EXPECT_EQ(resumed->steps, 0U);
  ASSERT_EQ(resumed->evaluations.size(), 1U);
  EXPECT_EQ(resumed->evaluations[0].epoch, 2U);
}

TEST(TrainingLoop, CrashResumesFromTheLastPeriodicCheckpoint) {
  RunFixture whole;
  ScriptedEngine whole_engine;
  ASSERT_TRUE(whole.Run(whole_engine).has_value());
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 4;
  run.probe.fail_at_global_step = 14;
  ScriptedEngine engine;
  const auto crashed = run.Run(engine);
  ASSERT_FALSE(crashed.has_value());
  EXPECT_EQ(crashed.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(run.probe.faults, 1U);
  run.probe.fail_at_global_step.reset();
  run.config.checkpoint.resume = "auto";
  ScriptedEngine again;
  const auto resumed = run.Run(again);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  // That of step 12 may still have been under way; then the one before was written.
  EXPECT_THAT(resumed->first_global_step, AnyOf(8U, 12U));
  EXPECT_EQ(run.LossCurve(), whole.LossCurve());
}

TEST(TrainingLoop, AutoWithoutACheckpointStartsAfresh) {
  RunFixture run;
  run.config.checkpoint.resume = "auto";
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_EQ(report->steps, 30U);
  EXPECT_THAT(run.printed, Contains(HasSubstr("starting afresh")));
}

TEST(TrainingLoop, AutoPassesOverATornCheckpoint) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 5;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  std::filesystem::resize_file(std::filesystem::path(stopped->checkpoint) / ShardName(0), 60);
  run.stop_after_steps = UINT64_MAX;
  run.config.checkpoint.resume = "auto";
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->first_global_step, 10U);
  EXPECT_THAT(run.printed, Contains(HasSubstr("passed over")));
}

TEST(TrainingLoop, NamedCheckpointMustLoad) {
  RunFixture run;
  run.config.checkpoint.resume = run.folder.path() / "none";
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(report.error().message(), HasSubstr("checkpoint.resume"));
}

TEST(TrainingLoop, FolderAndManifestNameACheckpoint) {
  RunFixture run;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  for (const std::string& path : {run.config.checkpoint.checkpoint_dir, stopped->checkpoint,
                                  stopped->checkpoint + "/manifest.json"}) {
    RunFixture other;
    other.config.checkpoint.resume = path;
    other.stop_after_steps = 1;
    const auto resumed = other.Run(engine);
    ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
    EXPECT_EQ(resumed->first_global_step, 12U);
  }
}

TEST(TrainingLoop, CheckpointHoldsTheRunsConfiguration) {
  RunFixture run;
  run.config.train.momentum = 0.625;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value());
  const auto manifest = ReadManifest(report->checkpoint);
  ASSERT_TRUE(manifest.has_value());
  TrainConfig read;
  ASSERT_TRUE(ApplyToml(read, manifest->state.configuration, "stored").has_value());
  EXPECT_EQ(read.train.momentum, 0.625);
  EXPECT_EQ(manifest->state.layout, "1 x 1");
}

TEST(TrainingLoop, ClockAsksForCheckpoints) {
  RunFixture run;
  run.config.evaluation.evaluate_every_epochs = 0;
  // The fixture's clock ticks by a microsecond: some three times per step.
  run.config.checkpoint.checkpoint_every_minutes = 20e-6 / 60;
  run.config.checkpoint.checkpoints_kept = 100;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  const std::filesystem::directory_iterator entries(run.config.checkpoint.checkpoint_dir);
  const auto count = std::distance(begin(entries), end(entries));
  EXPECT_GE(count, 3);
  EXPECT_LE(count, 6);
}

TEST(TrainingLoop, BestEvaluationIsKeptApart) {
  RunFixture run;
  run.config.checkpoint.keep_best = true;
  run.config.checkpoint.checkpoints_kept = 1;
  ScriptedEngine engine;  // finds as much in every evaluation: the first one is the best
  ASSERT_TRUE(run.Run(engine).has_value());
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  const auto best = ReadManifest(folder / "best" / "step-000000000010");
  ASSERT_TRUE(best.has_value()) << best.error().ToString();
  ASSERT_TRUE(best->state.best.has_value());
  EXPECT_EQ(best->state.best->epoch, 0U);
  EXPECT_EQ(best->state.best->metric, "accuracy");
  const auto last = ReadManifest(folder / "step-000000000030");
  ASSERT_TRUE(last.has_value()) << last.error().ToString();
  EXPECT_EQ(last->state.best, best->state.best);
}

TEST(TrainingLoop, TargetEndsTheRunAndStaysReached) {
  RunFixture run;
  run.config.evaluation.target = 0.01;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_TRUE(report->completed);
  EXPECT_TRUE(report->target_reached);
  EXPECT_EQ(report->steps, 10U);
  EXPECT_THAT(report->checkpoint, HasSubstr("step-000000000010"));
  EXPECT_THAT(run.printed, Contains(HasSubstr("reaches evaluation.target = 0.01")));
  run.config.checkpoint.resume = "auto";
  const auto again = run.Run(engine);
  ASSERT_TRUE(again.has_value()) << again.error().ToString();
  EXPECT_TRUE(again->target_reached);
  EXPECT_EQ(again->steps, 0U);
  run.config.evaluation.target = 0.9;  // out of reach: the run goes on
  const auto on = run.Run(engine);
  ASSERT_TRUE(on.has_value()) << on.error().ToString();
  EXPECT_FALSE(on->target_reached);
  EXPECT_EQ(on->steps, 20U);
}

TEST(TrainingLoop, LowerIsBetterWhereTheMetricSaysSo) {
  RunFixture run;
  run.config.evaluation.target = 0.9;
  ScriptedEngine engine;
  engine.judged_by = {.name = "mae", .higher_is_better = false};
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_TRUE(report->target_reached);
  EXPECT_EQ(report->steps, 10U);
  EXPECT_THAT(run.printed, Contains(HasSubstr("epoch 1/3 test mae 0.")));
}

TEST(TrainingLoop, SignalEndsAnEvaluationWhichTheNextRunMakesUp) {
  RunFixture run;
  run.stop_after_validated = 32;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value()) << stopped.error().ToString();
  EXPECT_FALSE(stopped->completed);
  EXPECT_EQ(stopped->steps, 10U);
  EXPECT_TRUE(stopped->evaluations.empty());
  run.stop_after_validated = UINT64_MAX;
  run.config.checkpoint.resume = "auto";
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->evaluations.size(), 3U);
  EXPECT_EQ(resumed->evaluations[0].samples, 70U);
}

TEST(TrainingLoop, EvaluationsAreCountedAlike) {
  LoopOptions options;
  options.epochs = 7;
  options.evaluate_every_epochs = 3;  // after epochs 2, 5 and the last
  EXPECT_EQ(EvaluationsLeft(options, 0), 3U);
  EXPECT_EQ(EvaluationsLeft(options, 2), 3U);
  EXPECT_EQ(EvaluationsLeft(options, 3), 2U);
  EXPECT_EQ(EvaluationsLeft(options, 6), 1U);
  EXPECT_EQ(EvaluationsLeft(options, 7), 0U);
  options.evaluate_every_epochs = 0;
  EXPECT_EQ(EvaluationsLeft(options, 0), 0U);
  RunFixture run;
  run.config.train.epochs = 5;
  run.config.evaluation.evaluate_every_epochs = 2;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_EQ(report->evaluations.size(), 3U);
}

TEST(TrainingLoop, OtherSeedOrBatchThanTheCheckpointIsRefused) {
  RunFixture run;
  run.stop_after_steps = 7;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  run.config.checkpoint.resume = "auto";
  run.config.train.seed = 99;
  const auto other_seed = run.Run(engine);
  ASSERT_FALSE(other_seed.has_value());
  EXPECT_EQ(other_seed.error().code(), ErrorCode::kFailedPrecondition);
  run.config.train.seed = 1;
  run.config.train.global_batch = 16;
  const auto other_batch = run.Run(engine);
  ASSERT_FALSE(other_batch.has_value());
  EXPECT_THAT(other_batch.error().message(), HasSubstr("train.global_batch is 32"));
}

TEST(TrainingLoop, BatchLargerThanTheTrainingSetNamesTheKey) {
  RunFixture run;
  run.config.train.global_batch = 512;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message(), HasSubstr("train.global_batch"));
}

TEST(TrainingLoop, RanksMustDivideTheBatch) {
  TrainConfig config;
  EXPECT_TRUE(CheckRanks(config, 2).has_value());
  const Status refused = CheckRanks(config, 3);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("train.global_batch = 64"));
}

TEST(TrainingLoop, DecayEpochsAreListsOfNumbers) {
  TrainConfig config;
  config.train.schedule = "step";
  config.train.decay_epochs = "30,60";
  const auto options = LoopOptionsOf(config, 1);
  ASSERT_TRUE(options.has_value()) << options.error().ToString();
  EXPECT_EQ(options->decay_epochs, (std::vector<std::uint64_t>{30, 60}));
  for (const char* wrong : {"0", "30,", ",30", "30;60", "x", "30 60", "-1", "99999999999"}) {
    config.train.decay_epochs = wrong;
    const Status refused = CheckRanks(config, 1);
    ASSERT_FALSE(refused.has_value()) << wrong;
    EXPECT_THAT(refused.error().message(), HasSubstr("train.decay_epochs"));
  }
}

TEST(TrainingLoop, SkippedStepIsDataLoss) {
  RunFixture run;
  run.probe.skip_at_global_step = 3;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(run.probe.faults, 1U);
}

TEST(TrainingLoop, MissingSampleIsDataLoss) {
  RunFixture run;
  run.probe.shrink_at_global_step = 3;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(run.probe.faults, 1U);
}

TEST(TrainingLoop, FeedThatNeverEndsIsDataLoss) {
  RunFixture run;
  run.probe.go_on_beyond_last_epoch = true;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(run.probe.faults, 1U);
}

TEST(TrainingLoop, LostValidationSampleIsDataLoss) {
  RunFixture run;
  run.probe.lose_validation_sample = true;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(report.error().message(), HasSubstr("69 of 70"));
  EXPECT_EQ(run.probe.faults, 1U);
}

TEST(TrainingLoop, InfiniteLossEndsTheRun) {
  RunFixture run;
  ScriptedEngine engine;
  engine.infinite_loss_at_step = 5;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message(), HasSubstr("train.learning_rate"));
  EXPECT_EQ(engine.faults, 1U);
}

TEST(TrainingLoop, PeriodicCheckpointThatFailsIsReportedAndTrainingGoesOn) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 10;
  ScriptedEngine engine;
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  run.on_step = [&](std::uint64_t steps) {
    // A file where the folder of the checkpoint would be made.
    if (steps == 10) std::ofstream(UnpublishedFolder(folder, 10)) << "x";
  };
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_THAT(run.printed, Contains(HasSubstr("checkpoint of step 10 not written")));
  std::vector<std::string> skipped;
  EXPECT_EQ(NewestCheckpoint(folder, skipped).value().value().filename(), "step-000000000030");
}

TEST(TrainingLoop, LastCheckpointThatCannotBeWrittenIsAnError) {
  RunFixture run;
  ScriptedEngine engine;
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  run.on_step = [&](std::uint64_t steps) {
    if (steps != 30) return;
    std::filesystem::remove_all(folder);
    std::ofstream(folder) << "x";
  };
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message(), HasSubstr("step-000000000030"));
}

TEST(TrainingLoop, TheFolderOfMetricsHasTheLossCurveAndEveryStepOfTheRank) {
  RunFixture run;
  run.config.run.metrics_file.clear();
  run.config.run.metrics_dir = run.folder.path() / "metrics";
  run.config.run.log_every_steps = 4;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  const auto record = ReadRun(run.config.run.metrics_dir);
  ASSERT_TRUE(record.has_value()) << record.error().ToString();
  EXPECT_EQ(record->steps.size(), 30U);
  EXPECT_EQ(record->evaluations.size(), 3U);
  ASSERT_EQ(record->ranks.size(), 1U);
  ASSERT_EQ(record->ranks[0].steps.size(), 30U);
  // A tick of waiting for data, and one between it and the end of the step, of which this engine
  // tells nothing.
  const StepAccount& account = record->ranks[0].steps.at(7);
  EXPECT_EQ(account.step_ns, 2000U);
  EXPECT_EQ(account.at(TimeClass::kWaitData), 1000U);
  EXPECT_EQ(account.at(TimeClass::kCompute), 1000U);
  ASSERT_EQ(report->rank_totals.size(), 1U);
  EXPECT_EQ(report->rank_totals[0].steps, 30U);
  EXPECT_EQ(report->rank_totals[0].samples, 960U);
  EXPECT_THAT(run.printed,
              Contains(HasSubstr("time of all ranks: compute 50.0 %, wait_data 50.0 %")));
}

TEST(TrainingLoop, FullDiskUnderTheMetricsEndsTheRun) {
  RunFixture run;
  run.config.run.metrics_file = "/dev/full";
  ScriptedEngine engine;
  EXPECT_FALSE(run.Run(engine).has_value());
}

}  // namespace
}  // namespace forebay::train
