// The command evaluate: it finds the figures that the run had, takes the run's configuration, and
// refuses a checkpoint of another model.
#include "trainer/core/loop/evaluate_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/core/loop/evaluation_sums.h"
#include "trainer/testing/memory_feed.h"
#include "trainer/testing/run_fixture.h"
#include "trainer/testing/scripted_engine.h"
#include "trainer/testing/stored_checkpoint.h"

namespace forebay::train::evaluate_checkpoint_test {

using ::testing::HasSubstr;
using testing::RunFixture;
using testing::ScriptedEngine;

Result<EvaluateRequest> Parse(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"forebay-train", "evaluate"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseEvaluateCommand(static_cast<int>(argv.size()), argv.data());
}

// A run whose folder of checkpoints is evaluated afterwards.
class EvaluateCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run_.config.train.learning_rate = 0.25;
    run_.config.layout.micro_batch = 8;
    run_.config.layout.switches = "step 3: 1x1";
    run_.config.memory.budget = "1GB";
    run_.config.run.metrics_dir = run_.folder.path() / "metrics";
    ScriptedEngine engine;
    const auto report = run_.Run(engine);
    ASSERT_TRUE(report.has_value()) << report.error().ToString();
    trained_ = *report;
  }

  Result<CheckpointEvaluation> Evaluate(const std::filesystem::path& checkpoint,
                                        testing::SampleSet validation) {
    ScriptedEngine engine;
    testing::MemoryFeedProbe probe;
    testing::MemorySource source({.global_batch = 32, .validation_batch = 7, .seed = 1},
                                 run_.training, validation, probe);
    return EvaluateCheckpoint(checkpoint, {.engine = engine,
                                           .communicator = run_.communicator,
                                           .feeds = source,
                                           .stop_requested = [] { return false; },
                                           .now_ns = [this] { return run_.clock_ns += 1000; },
                                           .print = [](const std::string&) {}});
  }

  RunFixture run_;
  TrainingReport trained_;
};

TEST_F(EvaluateCheckpointTest, HasTheFiguresOfTheRun) {
  const auto request = Parse({run_.config.checkpoint.checkpoint_dir});
  ASSERT_TRUE(request.has_value()) << request.error().ToString();
  EXPECT_EQ(request->checkpoint.string(), trained_.checkpoint);
  const auto done = Evaluate(request->checkpoint, run_.validation);
  ASSERT_TRUE(done.has_value()) << done.error().ToString();
  const EvaluationFigures& last = trained_.evaluations.back();
  EXPECT_EQ(done->figures.samples, 70U);
  EXPECT_DOUBLE_EQ(done->figures.score, last.score);
  EXPECT_DOUBLE_EQ(done->figures.loss, last.loss);
  EXPECT_EQ(done->global_step, 30U);
  EXPECT_THAT(ToText(*done), HasSubstr("step 30: test accuracy"));
  const auto json = nlohmann::json::parse(ToJsonText(*done));
  EXPECT_EQ(json["schema"], "forebay-evaluation-1");
  EXPECT_EQ(json["score"].get<double>(), done->figures.score);
}

TEST_F(EvaluateCheckpointTest, TheConfigurationIsTheRunsWithoutWhatTrainingNeeds) {
  const auto request = Parse({trained_.checkpoint, "--threads", "3"});
  ASSERT_TRUE(request.has_value()) << request.error().ToString();
  const TrainConfig& config = request->config;
  EXPECT_EQ(config.train.learning_rate, 0.25);
  EXPECT_EQ(config.layout.micro_batch, 8);
  EXPECT_EQ(config.run.threads, 3);
  EXPECT_EQ(config.layout.switches, "");
  EXPECT_EQ(config.memory.budget, "0");
  EXPECT_EQ(config.checkpoint.checkpoint_dir, "");
  EXPECT_EQ(config.run.metrics_dir, "");
  EXPECT_TRUE(config.checkpoint.force_identity);
}

TEST_F(EvaluateCheckpointTest, AnotherModelsCheckpointIsRefused) {
  testing::Rewrite(trained_.checkpoint, [](Checkpoint& state) { state.configuration = "[x"; });
  EXPECT_FALSE(Parse({trained_.checkpoint}).has_value());
}

TEST_F(EvaluateCheckpointTest, RefusesWrongWordsWithTheUsage) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, {"--threads"}, {trained_.checkpoint, "--no-such-flag"}}) {
    const auto refused = Parse(words);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(Parse({run_.folder.path() / "absent"}).has_value());
  EXPECT_THAT(Parse({"--help"})->text, HasSubstr("evaluate CHECKPOINT"));
}

TEST(EvaluationSumsTest, SamplesThatAreMissingOrThereTwiceAreDataLoss) {
  EvaluationSums sums;
  sums.Add({.loss_sum = 3, .score_sum = 1, .samples = 4});
  EXPECT_EQ(sums.Figures(5).error().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(sums.Figures(3).error().code(), ErrorCode::kDataLoss);
  ASSERT_TRUE(sums.Figures(4).has_value());
  EXPECT_EQ(sums.Figures(4)->score, 0.25);
  EXPECT_EQ(EvaluationSums().Figures(0).error().code(), ErrorCode::kDataLoss);
}

}  // namespace forebay::train::evaluate_checkpoint_test
