// Reports drawn from files that the test writes: the page is well-formed, shows every class, and
// survives gaps, kills and resumed runs.
#include "trainer/core/report/draw_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/core/metrics/step_meter.h"
#include "trainer/core/metrics/training_report.h"
#include "trainer/core/report/report_page.h"
#include "trainer/core/report/svg_page.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The first element that is not closed where it should be, or what is left open; empty: none.
// Enough of XML for what the report writes.
std::string FirstUnbalanced(std::string_view text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string_view::npos) return "a tag without an end";
    const std::string_view tag = text.substr(at + 1, end - at - 1);
    at = end;
    if (tag.starts_with('!') || tag.starts_with("meta") || tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.emplace_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return std::string(tag);
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? std::string() : open.back();
}

std::size_t CountOf(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// A folder as a run of `steps` steps on one rank leaves it.
void Train(const std::filesystem::path& folder, std::uint64_t steps) {
  Communicator alone = Communicator::Alone();
  auto meter = StepMeter::Open({.folder = folder, .peak_gflops = 100}, alone);
  auto curve = MetricsFile::Open(folder / kLossCurveFile, false);
  ASSERT_TRUE(meter->BeginLayout({}, {.flops = 1e9, .step_ns = 9'000'000, .bubble = 0.0,
                                      .planned_bytes = {4'000'000, 2'000'000, 0, 1000, 500'000}})
                  .has_value());
  for (std::uint64_t step = 0; step < steps; ++step) {
    StepAccount account;
    account.at(TimeClass::kCompute) = 8'000'000;
    account.at(TimeClass::kWaitData) = 1'000'000 + 1000 * step;
    account.step_ns = 10'000'000 + 1000 * step;
    account.plan_ns = 9'000'000;
    account.peak_bytes = 50'000'000;
    account.Close();
    ASSERT_TRUE(meter->Step({.global_step = step, .step = step, .samples = 64}, account)
                    .has_value());
    const double loss =
        step == 5 ? std::numeric_limits<double>::quiet_NaN() : 2.0 / static_cast<double>(step + 1);
    ASSERT_TRUE(curve->Step({.global_step = step, .step = step, .loss = loss,
                             .learning_rate = 0.1})
                    .has_value());
  }
  EvaluationFigures figures;
  figures.score = 0.875;
  ASSERT_TRUE(curve->Evaluation({}, figures).has_value());
  TrainingReport report;
  report.samples = 64 * steps;
  report.weights_digest = 0xabcd;
  ASSERT_TRUE(WriteSummary(folder / kSummaryFile, report).has_value());
  ASSERT_TRUE(meter->Finish().has_value());
}

Result<std::string> Command(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"forebay-train", "report"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ReportCommand(static_cast<int>(argv.size()), argv.data());
}

std::string ContentOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ReportPageTest, OneFileShowsTheWholeRun) {
  const testing::TempFolder folder;
  Train(folder.path(), 10);
  const auto line = Command({folder.path()});
  ASSERT_TRUE(line.has_value()) << line.error().ToString();
  EXPECT_THAT(*line, HasSubstr("10 steps of 1 ranks"));
  const std::string html = ContentOf(folder.path() / "report.html");
  EXPECT_EQ(FirstUnbalanced(html), "");
  for (const char* part :
       {"<!doctype html>", "<td>weights_digest</td><td>000000000000abcd</td>", ">loss</text>",
        ">accuracy of evaluations</text>", ">samples/s</text>", ">MFU, %</text>",
        ">where the time of all ranks went, by step</text>",
        ">where the time went, by rank</text>", "<title>compute: 79.96 %</title>",
        ">planned memory by rank, each class at its own peak</text>",
        "<title>resident: 4 MB</title>", ">highest resident set of the process so far, MB<"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  // Self-contained: nothing is loaded from anywhere.
  for (const char* part : {"<script", "href=", "src=", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(part)));
  }
}

TEST(ReportPageTest, AnSvgIsThePlotsAlone) {
  const testing::TempFolder folder;
  Train(folder.path(), 10);
  const std::filesystem::path path = folder.path() / "plots.svg";
  ASSERT_TRUE(Command({folder.path(), "-o", path}).has_value());
  const std::string svg = ContentOf(path);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << svg.substr(0, 40);
  EXPECT_EQ(FirstUnbalanced(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("<table")));
}

TEST(ReportPageTest, RunsAreComparedOverTheSameAxes) {
  const testing::TempFolder folder;
  for (const char* name : {"first", "second"}) {
    std::filesystem::create_directory(folder.path() / name);
    Train(folder.path() / name, 10);
  }
  const std::filesystem::path path = folder.path() / "both.svg";
  const auto line =
      Command({folder.path() / "first", (folder.path() / "second").string() + "/", "-o", path});
  ASSERT_TRUE(line.has_value()) << line.error().ToString();
  EXPECT_THAT(*line, HasSubstr("2 runs"));
  const std::string svg = ContentOf(path);
  EXPECT_EQ(FirstUnbalanced(svg), "");
  EXPECT_THAT(svg, HasSubstr(">accuracy of evaluations</text>"));
  EXPECT_THAT(svg, HasSubstr(">first</text>"));
  EXPECT_THAT(svg, HasSubstr(">second</text>"));
}

TEST(ReportPageTest, ALossThatIsNotFiniteIsAGap) {
  const testing::TempFolder folder;
  Train(folder.path(), 10);
  const auto run = ReadRun(folder.path());
  ASSERT_TRUE(run.has_value()) << run.error().ToString();
  EXPECT_TRUE(std::isnan(run->steps.at(5).loss));
  const std::string svg = ReportSvg(*run);
  const std::size_t begin = svg.find("<path d=\"M", svg.find(">loss</text>"));
  const std::string path = svg.substr(begin, svg.find("fill", begin) - begin);
  EXPECT_EQ(CountOf(path, "M"), 2U);  // the pen is lifted once
  EXPECT_EQ(CountOf(path, "L"), 7U);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(ReportPageTest, LongRunsAreThinned) {
  const testing::TempFolder folder;
  Train(folder.path(), 3000);
  const std::string svg = ReportSvg(ReadRun(folder.path()).value());
  EXPECT_LT(svg.size(), 60'000U);
  EXPECT_EQ(FirstUnbalanced(svg), "");
}

TEST(ReportPageTest, StepsThatWereMadeAgainCountAsTheyWereMadeLast) {
  const testing::TempFolder folder;
  std::ofstream(folder.path() / kLossCurveFile)
      << R"({"event":"step","global_step":0,"loss":3.0,"learning_rate":0.1})" << "\n"
      << R"({"event":"step","global_step":1,"loss":2.0,"learning_rate":0.1})" << "\n"
      << R"({"event":"step","global_step":2,"loss":9.0,"learning_rate":0.1})" << "\n"
      << R"({"event":"evaluation","epoch":0,"accuracy":0.5,"loss":1.0})" << "\n"
      << R"({"event":"resumed","global_step":1})" << "\n"
      << R"({"event":"step","global_step":1,"loss":2.5,"learning_rate":0.1})" << "\n"
      << R"({"event":"step","global_step":2,"lo)";  // torn
  const auto run = ReadRun(folder.path());
  ASSERT_TRUE(run.has_value()) << run.error().ToString();
  ASSERT_EQ(run->steps.size(), 2U);
  EXPECT_EQ(run->steps.at(0).loss, 3.0);
  EXPECT_EQ(run->steps.at(1).loss, 2.5);
  EXPECT_TRUE(run->evaluations.empty());
  EXPECT_EQ(FirstUnbalanced(ReportSvg(*run)), "");
}

TEST(ReportPageTest, NamesTheLineThatIsNoRecord) {
  const testing::TempFolder folder;
  std::ofstream(folder.path() / "rank-00000.jsonl") << "{\"event\":7}\nnonsense\n{}\n";
  const auto run = ReadRun(folder.path());
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(run.error().message(), HasSubstr("rank-00000.jsonl line 2"));
  std::ofstream(folder.path() / "rank-00000.jsonl") << "{\"event\":\"step\"}\n";
  std::ofstream(folder.path() / kSummaryFile) << "[]";
  EXPECT_EQ(ReadRun(folder.path()).error().code(), ErrorCode::kDataLoss);
}

// Nobody writes to the pipes: an open that waits for a writer would not return.
TEST(ReportPageTest, PipesInTheFolderAreRefused) {
  for (const std::string name : {kSummaryFile, kLossCurveFile}) {
    const testing::TempFolder folder;
    Train(folder.path(), 3);
    const std::filesystem::path pipe = folder.path() / name;
    std::filesystem::remove(pipe);
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const auto run = ReadRun(folder.path());
    ASSERT_FALSE(run.has_value()) << name;
    EXPECT_EQ(run.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(run.error().message(), HasSubstr(name + ": not a regular file"));
  }
}

TEST(ReportPageTest, AFolderWithoutARunIsNotFound) {
  const testing::TempFolder folder;
  const auto run = ReadRun(folder.path());
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(run.error().message(), HasSubstr("--metrics-dir"));
  EXPECT_FALSE(ReadRun(folder.path() / "missing").has_value());
}

TEST(ReportPageTest, WrongWordsAreNamed) {
  EXPECT_THAT(*Command({"--help"}), HasSubstr("report FOLDER"));
  const std::vector<std::vector<std::string>> wrong = {
      {}, {"a", "b"}, {"a", "b", "-o", "both.html"}, {"a", "-x"}, {"a", "-o"},
      {"a", "-o", "report.pdf"}};
  for (const std::vector<std::string>& words : wrong) {
    const auto line = Command(words);
    ASSERT_FALSE(line.has_value());
    EXPECT_EQ(line.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(SvgPageTest, NamesAreEscapedAndEmptyPlotsSaySo) {
  SvgPage page;
  page.AddLines("a < b & \"c\"", "x", {{.name = "<line>", .points = {{0, 1}}}});
  page.AddLines("nothing", "x", {});
  page.AddBars("no bars", " %", {"a"}, {{.label = "0", .parts = {0.0}}});
  const std::string svg = page.Finish();
  EXPECT_EQ(FirstUnbalanced(svg), "");
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr("&lt;line&gt;"));
  EXPECT_EQ(CountOf(svg, "no figures"), 2U);
}

TEST(SvgPageTest, AxesAreWholeStepsFromTheLowestValueOrFromZero) {
  const std::vector<PlotLine> lines = {{.name = {}, .points = {{0, 41}, {1, 59}}}};
  SvgPage close;
  close.AddLines("close", "x", lines);
  EXPECT_THAT(close.Finish(), HasSubstr("text-anchor=\"end\">40</text>"));
  EXPECT_THAT(close.Finish(), Not(HasSubstr("text-anchor=\"end\">0</text>")));
  SvgPage far;
  far.AddLines("far", "x", lines, /*from_zero=*/true);
  EXPECT_THAT(far.Finish(), HasSubstr("text-anchor=\"end\">0</text>"));
  SvgPage level;
  level.AddLines("level", "x", {{.name = {}, .points = {{0, 0.1}, {1, 0.1}}}});
  EXPECT_THAT(level.Finish(), HasSubstr("text-anchor=\"end\">0.09</text>"));
  EXPECT_THAT(level.Finish(), HasSubstr("text-anchor=\"end\">0.11</text>"));
}

TEST(SvgPageTest, PartsStandUponOneAnother) {
  SvgPage page;
  page.AddBars("bars", " %", {"a", "b"}, {{.label = "0", .parts = {25, 75}}});
  const std::string svg = page.Finish();
  // The plot is 170 high and begins at 40: a reaches from 167.5 to 210, b from 40 on.
  EXPECT_THAT(svg, HasSubstr("y=\"167.50\" width=\"60.00\" height=\"42.50\""));
  EXPECT_THAT(svg, HasSubstr("y=\"40.00\" width=\"60.00\" height=\"127.50\""));
}

}  // namespace
}  // namespace forebay::train
