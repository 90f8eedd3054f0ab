// The JSON lines, sums and tables of steps that the test accounts for, on one rank and on several
// threads.
#include "trainer/core/metrics/step_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr std::uint64_t kMs = 1'000'000;

// 10 ms: 6 of passes, 1 of the optimiser, 2 of waiting for messages, half of data, half unknown.
StepAccount Account() {
  StepAccount account;
  account.at(TimeClass::kCompute) = 6 * kMs;
  account.at(TimeClass::kOptimiser) = 1 * kMs;
  account.at(TimeClass::kWaitRecv) = 2 * kMs;
  account.at(TimeClass::kWaitData) = kMs / 2;
  account.at(ByteChannel::kActivation) = 1000;
  account.at(ByteChannel::kSwap) = 64;
  account.step_ns = 10 * kMs;
  account.plan_ns = 9 * kMs;
  account.peak_bytes = 3'000'000;
  account.Close();
  return account;
}

std::vector<Json> LinesOf(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(StepAccountTest, WhatNoClassHasIsOther) {
  StepAccount account = Account();
  EXPECT_EQ(account.at(TimeClass::kOther), kMs / 2);
  EXPECT_EQ(std::accumulate(account.ns.begin(), account.ns.end(), std::uint64_t{0}),
            account.step_ns);
  account.Close();  // once more changes nothing
  EXPECT_EQ(account.at(TimeClass::kOther), kMs / 2);
  account.step_ns = 1;  // clocks that disagree: never below zero
  account.Close();
  EXPECT_EQ(account.at(TimeClass::kOther), 0U);
}

TEST(StepMeterTest, WritesALineForEveryStep) {
  const testing::TempFolder folder;
  Communicator alone = Communicator::Alone();
  auto meter = StepMeter::Open({.folder = folder.path() / "run", .peak_gflops = 100}, alone);
  ASSERT_TRUE(meter.has_value()) << meter.error().ToString();
  ASSERT_TRUE(meter->BeginLayout({}, {.flops = 5e8, .step_ns = 9, .bubble = 0.25,
                                      .planned_bytes = {1, 2, 3, 4, 5}})
                  .has_value());
  for (std::uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(meter->Step({.global_step = 10 + step, .epoch = 2, .step = step, .samples = 32},
                            Account())
                    .has_value());
  }
  ASSERT_TRUE(meter->Flush().has_value());
  const std::vector<Json> lines = LinesOf(folder.path() / "run" / "rank-00000.jsonl");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].at("event"), "layout");
  EXPECT_EQ(lines[0].at("schema"), "forebay-train-rank-1");
  EXPECT_EQ(lines[0].at("predicted_bubble"), 0.25);
  EXPECT_EQ(lines[0].at("planned_bytes").at("resident"), 1);
  EXPECT_EQ(lines[0].at("planned_bytes").at("scratch"), 5);
  const Json& last = lines[3];
  EXPECT_EQ(last.at("event"), "step");
  EXPECT_EQ(last.at("global_step"), 12);
  EXPECT_EQ(last.at("compute_ns"), 6 * kMs);
  EXPECT_EQ(last.at("wait_recv_ns"), 2 * kMs);
  EXPECT_EQ(last.at("other_ns"), kMs / 2);
  EXPECT_EQ(last.at("activation_bytes"), 1000);
  EXPECT_EQ(last.at("peak_bytes"), 3'000'000);
  EXPECT_EQ(last.at("samples_per_s"), 3200);
  EXPECT_EQ(last.at("tflops"), 0.05);  // 0.5 GFLOP in 10 ms
  EXPECT_EQ(last.at("mfu"), 0.5);
}

TEST(StepMeterTest, WhatIsNotKnownIsNull) {
  const testing::TempFolder folder;
  Communicator alone = Communicator::Alone();
  auto meter = StepMeter::Open({.folder = folder.path()}, alone);
  ASSERT_TRUE(meter->BeginLayout({}, {}).has_value());
  ASSERT_TRUE(meter->Step({.samples = 1}, {}).has_value());
  ASSERT_TRUE(meter->Flush().has_value());
  const std::vector<Json> lines = LinesOf(folder.path() / "rank-00000.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  for (const char* key : {"flops_per_step", "peak_gflops", "predicted_bubble"}) {
    EXPECT_TRUE(lines[0].at(key).is_null()) << key;
  }
  for (const char* key : {"samples_per_s", "tflops", "mfu"}) {
    EXPECT_TRUE(lines[1].at(key).is_null()) << key;
  }
}

TEST(StepMeterTest, AResumedRunGoesOnInItsFile) {
  const testing::TempFolder folder;
  Communicator alone = Communicator::Alone();
  for (const bool append : {false, true}) {
    auto meter = StepMeter::Open({.folder = folder.path(), .append = append}, alone);
    ASSERT_TRUE(meter->Step({}, Account()).has_value());
  }
  EXPECT_EQ(LinesOf(folder.path() / "rank-00000.jsonl").size(), 2U);
}

TEST(StepMeterTest, AFullDiskIsAnErrorAtTheLatestWhenFlushedAndTheMeterGoesOn) {
  const testing::TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path() / "rank-00000.jsonl");
  Communicator alone = Communicator::Alone();
  auto meter = StepMeter::Open({.folder = folder.path()}, alone);
  ASSERT_TRUE(meter->Step({}, Account()).has_value());
  EXPECT_FALSE(meter->Flush().has_value());
  EXPECT_TRUE(meter->Window().has_value());
  EXPECT_FALSE(StepMeter::Open({.folder = "/dev/null/metrics"}, alone).has_value());
}

TEST(StepMeterTest, WindowsAndTotalsAreOverAllRanks) {
  auto ends = MakeLocalTransports(2);
  std::vector<std::string> lines(4);
  std::vector<std::vector<RankTotals>> totals(2);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(std::move(ends[rank]));
      auto meter = StepMeter::Open({.peak_gflops = 100}, communicator);
      EXPECT_TRUE(meter->BeginLayout({.replicas = 1, .stages = 2},
                                     {.flops = 5e8, .step_ns = 1, .bubble = 0.125})
                      .has_value());
      StepAccount account = Account();
      if (rank == 1) {  // its passes take 2 ms of the 6, the rest it waits
        account.at(TimeClass::kCompute) = 2 * kMs;
        account.at(TimeClass::kWaitRecv) = 6 * kMs;
        account.Close();
      }
      for (int window = 0; window < 2; ++window) {
        EXPECT_TRUE(meter->Step({.samples = 32}, account).has_value());
        lines[2 * rank + static_cast<std::uint32_t>(window)] = meter->Window().value();
      }
      totals[rank] = meter->Finish().value();
    });
  }
  threads.clear();
  EXPECT_EQ(lines[0], lines[2]);
  EXPECT_EQ(lines[0], lines[1]);  // a window begins afresh
  for (const char* part : {"compute 40.0 %", "optimiser 10.0 %", "wait_recv 40.0 %",
                           "wait_data 5.0 %", "0.1 TFLOP/s, MFU 50 %",
                           "bubble 44.4 % (predicted 12.5 %)"}) {
    EXPECT_THAT(lines[0], HasSubstr(part));
  }
  EXPECT_THAT(lines[0], Not(HasSubstr("swap_stall")));
  ASSERT_EQ(totals[0].size(), 2U);
  EXPECT_EQ(totals[0][1].steps, 2U);
  EXPECT_EQ(totals[0][1].samples, 64U);
  EXPECT_EQ(totals[1][0].account.at(TimeClass::kCompute), 12 * kMs);
  EXPECT_EQ(totals[1][1].account.at(TimeClass::kWaitRecv), 12 * kMs);
  EXPECT_NEAR(BubbleOf(totals[0]), 8.0 / 18, 1e-12);
}

TEST(StepMeterTest, TheTableHasARowByRankAndTheClassesThatOccur) {
  RankTotals totals{.steps = 2, .samples = 64, .flops = 1e9, .peak_gflops = 100,
                    .account = Account()};
  totals.account += Account();
  const std::string table = RankTable(std::vector<RankTotals>(40, totals));
  for (const char* part : {"ms/step", "wait_recv", "20.0 %", "10.00", "50 %", "0.00",
                           "... and 8 further ranks"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  EXPECT_THAT(table, Not(HasSubstr("recompute")));
}

// The bound is an order of magnitude above what it takes, for the sake of busy machines.

}  // namespace
}  // namespace forebay::train
