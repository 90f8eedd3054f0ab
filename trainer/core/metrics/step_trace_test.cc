// Chrome traces of real plans on threads: they parse, and have a span for each instruction of
// every rank.
#include "trainer/core/metrics/step_trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/schedule/testing/graph_fixture.h"
#include "trainer/schedule/testing/integer_worker.h"

namespace forebay::train {
namespace {

using Json = nlohmann::json;

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

struct Pipeline {
  ModelGraph graph = EvenChain(2);
  StageSplit split{{0, 1}};
  StepPlan plan;
  Simulation predicted;

  Pipeline() {
    PlanRequest request;
    request.stages = CutIntoStages(graph, split).value();
    request.layout = {.replicas = 1, .stages = 2};
    request.micro_batches = 2;
    plan = BuildPlan(request).value();
    predicted = SimulatePlan(plan, {}).value();
  }
};

// Runs steps 0 to 3 on two threads with a trace of `steps`; the file's events.
Json TraceOf(const Pipeline& made, StepRange steps, bool reaches_last) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("forebay_trace_" + std::to_string(NowNs()));
  auto ends = MakeLocalTransports(2);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(std::move(ends[rank]));
      StepTrace trace({.path = path.string(), .steps = steps});
      for (std::uint64_t step = 0; step < 4; ++step) {
        if (trace.Covers(step)) {
          ASSERT_TRUE(trace.Begin(communicator, NowNs).has_value());
        }
        IntegerWorker worker(made.graph, made.split, made.plan, rank);
        PlanRunner runner(made.plan, worker, communicator.transport(),
                          {.now_ns = NowNs, .traces = trace.Covers(step)});
        const auto report = runner.RunStep({.step = step, .samples_hashes = {1, 2}});
        ASSERT_TRUE(report.has_value()) << report.error().ToString();
        if (trace.Covers(step)) trace.Add(step, made.plan, *report, made.predicted);
        if (reaches_last && step == steps.last) {
          EXPECT_TRUE(trace.Write(communicator).has_value());
        }
      }
      EXPECT_TRUE(trace.Write(communicator).has_value());  // the end of the run
    });
  }
  threads.clear();
  std::ifstream file(path);
  Json document = file ? Json::parse(file) : Json();
  std::filesystem::remove(path);
  return document;
}

TEST(StepTraceTest, HasASpanForEveryInstructionOfAPlan) {
  const Pipeline made;
  const Json trace = Json::parse(ToChromeTrace(made.plan, made.predicted.spans));
  const std::size_t instructions =
      made.plan.programs[0].instructions.size() + made.plan.programs[1].instructions.size();
  ASSERT_EQ(trace.at("traceEvents").size(), instructions);
  EXPECT_EQ(trace["traceEvents"][1].at("name"), "F micro-batch 0");
}

TEST(StepTraceTest, RanksLieInOneFileBesideWhatWasPredicted) {
  const Pipeline made;
  const Json trace = TraceOf(made, {.first = 1, .last = 2}, true);
  std::size_t spans[2] = {0, 0};
  std::set<std::pair<int, int>> steps_of_ranks;
  double sent = 0;
  double received = 0;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int process = event.at("pid").get<int>();
    ++spans[process];
    EXPECT_GE(event.at("ts").get<double>(), 0);
    const int step = event.at("args").at("step").get<int>();
    steps_of_ranks.insert({event.at("tid").get<int>(), step});
    if (process != 0 || step != 1) continue;
    const std::string name = event.at("name").get<std::string>();
    if (name.find("SEND activation") == 0 && sent == 0) sent = event.at("ts").get<double>();
    if (name.find("RECV activation") == 0 && received == 0) {
      received = event.at("ts").get<double>() + event.at("dur").get<double>();
    }
  }
  const std::size_t instructions =
      made.plan.programs[0].instructions.size() + made.plan.programs[1].instructions.size();
  EXPECT_EQ(spans[0], 2 * instructions);
  EXPECT_EQ(spans[1], 2 * instructions);
  EXPECT_EQ(steps_of_ranks, (std::set<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 1}, {1, 2}}));
  // Both ranks read one clock here, so that zero is the same to within the barrier's own time.
  EXPECT_GT(received + 5'000, sent);
  EXPECT_GT(sent, 0);
}

TEST(StepTraceTest, ARunThatEndsEarlyLeavesWhatItHas) {
  const Json trace = TraceOf(Pipeline(), {.first = 3, .last = 100}, false);
  ASSERT_TRUE(trace.is_object());
  std::set<int> steps;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") steps.insert(event.at("args").at("step").get<int>());
  }
  EXPECT_EQ(steps, std::set<int>{3});
}

TEST(StepTraceTest, NoFileWhereNoStepIsCovered) {
  EXPECT_TRUE(TraceOf(Pipeline(), {.first = 7, .last = 9}, false).is_null());
}

TEST(StepTraceTest, AFileThatCannotBeWrittenEndsNoRun) {
  Communicator alone = Communicator::Alone();
  StepTrace trace({.path = "/nonexistent/trace.json", .steps = {.first = 0, .last = 0}});
  ASSERT_TRUE(trace.Begin(alone, NowNs).has_value());
  ASSERT_TRUE(trace.Write(alone).has_value());
  ASSERT_FALSE(trace.failure().has_value());
  EXPECT_NE(trace.failure().error().message().find("run.trace_file"), std::string::npos);
}

TEST(StepTraceTest, RangesAreAStepOrTwo) {
  EXPECT_EQ(ParseStepRange("10-12")->first, 10U);
  EXPECT_EQ(ParseStepRange("10-12")->last, 12U);
  EXPECT_EQ(ParseStepRange("7")->first, 7U);
  EXPECT_EQ(ParseStepRange("7")->last, 7U);
  for (const char* bad : {"", "-3", "3-", "5-4", "1-2-3", "a", "1 - 2"}) {
    const auto range = ParseStepRange(bad);
    ASSERT_FALSE(range.has_value()) << bad;
    EXPECT_EQ(range.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace forebay::train
