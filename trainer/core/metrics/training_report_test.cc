// The figures of a run in its table, its summary and its loss curve; and the flag that a stop
// signal sets.
#include "trainer/core/metrics/training_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/core/machine/stop_signal.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train::training_report_test {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr std::uint64_t kSecond = 1'000'000'000;

TrainingReport Sample() {
  TrainingReport report;
  report.completed = true;
  report.samples = 1000;
  report.steps = 10;
  report.loop_ns = 10 * kSecond;
  report.train_ns = 8 * kSecond;
  report.wait_ns = 2 * kSecond;
  report.first_wait_ns = 1 * kSecond;
  report.first_batch_ns = 3 * kSecond / 2;
  EvaluationFigures figures;
  figures.samples = 100;
  figures.score = 0.95;
  report.evaluations.push_back(figures);
  figures.epoch = 1;
  figures.score = 0.9;
  report.evaluations.push_back(figures);
  RankTotals rank;
  rank.steps = 10;
  rank.account.at(TimeClass::kCompute) = 6 * kSecond;
  rank.account.step_ns = report.train_ns;
  rank.account.plan_ns = report.train_ns;
  report.rank_totals.push_back(rank);
  return report;
}

TEST(TrainingReport, DerivesItsFigures) {
  const TrainingReport report = Sample();
  EXPECT_DOUBLE_EQ(report.StallPercent(), 20.0);
  EXPECT_DOUBLE_EQ(report.WarmStallPercent(), 100.0 / 9);
  EXPECT_DOUBLE_EQ(report.SamplesPerSecond(), 125.0);
}

TEST(TrainingReport, EmptyRunDividesByNothing) {
  const TrainingReport report;
  EXPECT_EQ(report.StallPercent(), 0);
  EXPECT_EQ(report.WarmStallPercent(), 0);
  EXPECT_EQ(report.SamplesPerSecond(), 0);
  EXPECT_THAT(ClosingTable(report), HasSubstr("stopped by a signal"));
}

TEST(TrainingReport, TableHasTheTrainersFigures) {
  const std::string table = ClosingTable(Sample());
  for (const char* text : {"125 samples/s", "20.00 %", "1500.0 ms", "0.9000",
                           "75.0 %", "ms/step"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
}

TEST(TrainingReport, SummaryFileIsJson) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "summary.json";
  ASSERT_TRUE(WriteSummary(path, Sample()).has_value());
  std::ifstream file(path);
  const Json summary = Json::parse(file);
  EXPECT_EQ(summary["schema"], "forebay-train-summary-1");
  EXPECT_EQ(summary["status"], "completed");
  EXPECT_EQ(summary["stall_percent"], 20.0);
  EXPECT_EQ(summary["test_accuracy"], 0.9);
  EXPECT_EQ(summary["best_test_accuracy"], 0.95);
  EXPECT_EQ(summary["evaluations"].size(), 2U);
  ASSERT_EQ(summary["rank_totals"].size(), 1U);
  EXPECT_EQ(summary["rank_totals"][0]["compute_s"], 6.0);
  EXPECT_EQ(summary["rank_totals"][0]["mfu"], nullptr);
  EXPECT_EQ(summary["bubble"], 0.25);
}

TEST(TrainingReport, OtherMetricsAreCalledByTheirNames) {
  TrainingReport report = Sample();
  report.metric = {.name = "mae", .higher_is_better = false};
  report.target_reached = true;
  EXPECT_THAT(ClosingTable(report), HasSubstr("test mae"));
  const Json summary = Json::parse(SummaryJson(report));
  EXPECT_EQ(summary["metric"], "mae");
  EXPECT_EQ(summary["test_mae"], 0.9);
  EXPECT_EQ(summary["best_test_mae"], 0.9);
  EXPECT_EQ(summary["evaluations"][0]["mae"], 0.95);
  EXPECT_EQ(summary["evaluations"][0]["metric"], "mae");
  EXPECT_EQ(summary["target_reached"], true);
  EXPECT_FALSE(summary.contains("test_accuracy"));
}

TEST(TrainingReport, WeightsThatDependOnTheLayoutAreCalledSo) {
  TrainingReport report = Sample();
  EXPECT_EQ(Json::parse(SummaryJson(report))["layout_dependence"], nullptr);
  report.layout_dependence = "layout.micro_batches";
  EXPECT_EQ(Json::parse(SummaryJson(report))["layout_dependence"], "layout.micro_batches");
  EXPECT_THAT(ClosingTable(report),
              HasSubstr("they depend on the layout: layout.micro_batches\n"));
}

TEST(TrainingReport, SummaryThatCannotBeWrittenIsAnError) {
  EXPECT_FALSE(WriteSummary("/nonexistent/summary.json", Sample()).has_value());
  EXPECT_FALSE(WriteSummary("/dev/full", Sample()).has_value());
}

TEST(TrainingReportTest, ASummaryThatDoesNotFitLeavesNoHalfOne) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "summary.json";
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status written = WriteSummary(path, Sample());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(written.has_value());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(MetricsFile, LossesReadBackBitForBit) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "metrics.jsonl";
  StepFigures figures;
  figures.loss = 0.1 + 0.2;
  {
    auto metrics = MetricsFile::Open(path, false);
    ASSERT_TRUE(metrics.has_value());
    ASSERT_TRUE(metrics->Step(figures).has_value());
  }
  auto metrics = MetricsFile::Open(path, true);
  ASSERT_TRUE(metrics.has_value());
  ASSERT_TRUE(metrics->Resumed(1).has_value());
  ASSERT_TRUE(metrics->Evaluation({}, {}).has_value());
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(Json::parse(line)["loss"].get<double>(), figures.loss);
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(Json::parse(line)["event"], "resumed");
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(Json::parse(line)["event"], "evaluation");
}

TEST(MetricsFile, ATableHasTheSameScalars) {
  const testing::TempFolder folder;
  const std::string table = folder.path() / "scalars.csv";
  {
    auto metrics = MetricsFile::Open("", false, table);
    ASSERT_TRUE(metrics.has_value());
    ASSERT_TRUE(metrics->Step({.global_step = 6, .loss = 0.1, .learning_rate = 0.02}).has_value());
  }
  auto metrics = MetricsFile::Open("", true, table);  // a resumed run goes on in it
  ASSERT_TRUE(metrics.has_value());
  ASSERT_TRUE(metrics->Resumed(7).has_value());
  ASSERT_TRUE(metrics->Evaluation({}, {.epoch = 1, .score = 0.75, .loss = 1.5}).has_value());
  ASSERT_TRUE(metrics->Step({.global_step = 7,
                             .epoch = 2,
                             .loss = std::numeric_limits<double>::quiet_NaN(),
                             .learning_rate = 0.02})
                  .has_value());
  std::ifstream file(table);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text,
            "global_step,epoch,loss,learning_rate,evaluation_loss,metric,score\n"
            "6,0,0.1,0.02,,,\n"
            "7,1,,,1.5,accuracy,0.75\n"
            "7,2,nan,0.02,,,\n");
}

TEST(MetricsFile, ATableOnAFullDiskCostsNoLineOfTheOther) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "metrics.jsonl";
  auto metrics = MetricsFile::Open(path, false, "/dev/full");
  ASSERT_TRUE(metrics.has_value());
  EXPECT_FALSE(metrics->Step({.global_step = 1}).has_value());
  std::ifstream file(path);
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
}

TEST(MetricsFile, NoPathWritesNothing) {
  auto metrics = MetricsFile::Open("", false);
  ASSERT_TRUE(metrics.has_value());
  EXPECT_TRUE(metrics->Step({}).has_value());
  EXPECT_TRUE(metrics->Evaluation({}, {}).has_value());
}

TEST(MetricsFile, FullDiskIsAnError) {
  auto metrics = MetricsFile::Open("/dev/full", false);
  ASSERT_TRUE(metrics.has_value());
  EXPECT_FALSE(metrics->Step({}).has_value());
  EXPECT_FALSE(MetricsFile::Open("/nonexistent/metrics.jsonl", false).has_value());
}

TEST(StopSignal, RemembersSigtermAndSigusr1) {
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) {
    const StopSignal stop;
    EXPECT_FALSE(stop.requested());
    ASSERT_EQ(::raise(number), 0);
    EXPECT_TRUE(stop.requested());
  }
}

TEST(StopSignalDeathTest, SecondSigtermEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        ::raise(SIGTERM);
        ::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace forebay::train::training_report_test
