// The loop and RunTraining over feeds in memory and a scripted engine, without LibTorch.
#include "trainer/core/loop/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/core/loop/run_training.h"
#include "trainer/core/report/run_record.h"
#include "trainer/testing/run_fixture.h"
#include "trainer/testing/scripted_engine.h"

namespace forebay::train {
namespace {

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

TEST(TrainingLoop, ARunThatLeavesOutEveryStepEnds) {
  RunFixture run;
  run.config.train.nan_policy = "skip";
  run.config.train.epochs = 100;
  ScriptedEngine engine;
  engine.leaves_out_from_step = 2;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(report.error().message(), HasSubstr("so were the 99 steps before it"));
  EXPECT_EQ(engine.faults, 100U);
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

TEST(TrainingLoopTest, FullDiskUnderTheMetricsCostsThemAndNotTheRun) {
  RunFixture run;
  run.config.run.metrics_file = "/dev/full";
  run.config.run.metrics_dir = run.folder.path() / "metrics";
  std::filesystem::create_directories(run.config.run.metrics_dir);
  std::filesystem::create_symlink("/dev/full", run.folder.path() / "metrics/rank-00000.jsonl");
  ScriptedEngine engine;
  engine.fails_to_finish = true;  // as with a trace that cannot be written
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_EQ(report->steps, 30U);
  EXPECT_TRUE(std::filesystem::exists(report->checkpoint));
  // 30 steps and three evaluations, windows of the rank's file, the engine.
  EXPECT_GE(report->output_failures, 33U + 3 + 1);
  for (const char* what : {"/dev/full", "rank-00000.jsonl", "trace.json"}) {
    const auto says = [&](const std::string& line) {
      return line.starts_with("warning: ") && line.find(what) != std::string::npos;
    };
    EXPECT_EQ(std::ranges::count_if(run.printed, says), 1) << what;
  }
  EXPECT_THAT(ClosingTable(*report), HasSubstr("failures of metrics, trace"));
  EXPECT_THAT(SummaryJson(*report), HasSubstr("\"output_failures\""));
}

TEST(TrainingLoopTest, APathOfMetricsThatCannotBeIsAnErrorBeforeTraining) {
  for (const char* path : {"/nonexistent/metrics.jsonl", "/dev/null/metrics.jsonl"}) {
    RunFixture run;
    run.config.run.metrics_file = path;
    ScriptedEngine engine;
    const auto report = run.Run(engine);
    ASSERT_FALSE(report.has_value());
    EXPECT_THAT(report.error().message(), HasSubstr(path));
    EXPECT_TRUE(run.probe.trained.empty());
  }
}

}  // namespace
}  // namespace forebay::train
