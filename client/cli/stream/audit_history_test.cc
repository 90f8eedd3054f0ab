// What `forebay audit` makes of restarts: of one rank alone, of whole jobs on other numbers of
// ranks, and on nodes whose clocks differ; and what it claims where logs show a part only. The logs
// are written here, batch by batch, because a stream's own log has the time of this machine.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/forebay_run.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_steps.h"

namespace forebay::cli::audit_history_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kBatch = 8;
constexpr std::uint64_t kSteps = 8;
constexpr std::uint64_t kSamples = kBatch * kSteps;

// A rank's stream that was opened at `first` and delivered its share of the steps before `end`.
struct Opening {
  std::uint64_t ranks = 2;
  std::uint64_t rank = 0;
  std::uint64_t first = 0;  // counted over the epochs, as `end`
  std::uint64_t end = kSteps;
  std::uint64_t opened = 0;  // by the clock of its node
  std::uint64_t epochs = 1;
  bool names_end_of_epoch = false;  // a token at (e + 1, 0) says (e, last step + 1)
};

class AuditHistoryTest : public ::testing::Test {
 protected:
  AuditHistoryTest() {
    std::string folder = (std::filesystem::temp_directory_path() / "audit-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  ~AuditHistoryTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& log) const { return (folder_ / log).string(); }
  void Append(const std::string& log, const std::string& text) const {
    std::ofstream(Path(log), std::ios::app) << text;
  }

  // Adds an opening to the end of a log. Samples are in file order, so ids are positions.
  void Log(const std::string& log, const Opening& opening) {
    const OrderSpec order = {.seed = 1, .sample_count = kSamples,
                             .tail = TailPolicy::kDrop,
                             .shape = {.mode = OrderMode::kSequential}};
    std::string hex;
    for (const std::byte byte : order.Encode()) {
      for (const unsigned digit : {std::to_integer<unsigned>(byte) >> 4,
                                   std::to_integer<unsigned>(byte) & 15}) {
        hex += "0123456789abcdef"[digit];
      }
    }
    const std::uint64_t back = opening.names_end_of_epoch ? 1 : 0;
    Json header = {{"forebay_delivery_log", 1},
                   {"opened_unix_ns", opening.opened == 0 ? ++clock_ : opening.opened},
                   {"dataset", "d"},
                   {"stream", "train"},
                   {"selection", "all"},
                   {"catalog_fingerprint", 3},
                   {"samples", kSamples},
                   {"global_batch", kBatch},
                   {"ranks", opening.ranks},
                   {"rank", opening.rank},
                   {"first_epoch", opening.first / kSteps - back},
                   {"first_step", opening.first % kSteps + back * kSteps},
                   {"epochs", opening.epochs},
                   {"order_spec", hex}};
    Append(log, header.dump() + "\n");
    const StepPlan plan = *StepPlan::Create({.sample_count = kSamples, .global_batch = kBatch,
                                             .ranks = opening.ranks});
    for (std::uint64_t step = opening.first; step < opening.end; ++step) {
      const StepSlice share = *plan.RankSlice(StepId(step % kSteps), opening.rank);
      Json batch = {{"epoch", step / kSteps}, {"step", step % kSteps}, {"position", share.first}};
      for (std::uint64_t i = 0; i < share.count; ++i) batch["ids"].push_back(share.first + i);
      Append(log, batch.dump() + "\n");
    }
    if (std::ranges::count(logs_, log) == 0) logs_.push_back(log);
  }

  // Audits what was logged, without the logs in `left_out`.
  ForebayRun Audit(bool complete = true, const std::vector<std::string>& left_out = {},
                   bool json = true) const {
    std::vector<std::string> arguments = {"audit"};
    if (json) arguments.push_back("--json");
    if (complete) arguments.push_back("--complete");
    for (const std::string& log : logs_) {
      if (std::ranges::count(left_out, log) == 0) arguments.push_back(Path(log));
    }
    return Forebay(arguments);
  }
  static Json Stream(const ForebayRun& run) { return run.last()["streams"][0]; }
  static void ExpectWhole(const ForebayRun& run, std::uint64_t taken_back) {
    EXPECT_EQ(run.code, 0) << run.out;
    EXPECT_EQ(Stream(run)["outcome"], "whole") << run.out;
    EXPECT_EQ(Stream(run)["superseded_batches"], taken_back) << run.out;
  }
  static void ExpectMissing(const ForebayRun& run, std::uint64_t missing) {
    EXPECT_EQ(run.code, 3) << run.out;
    EXPECT_EQ(Stream(run)["outcome"], "violation") << run.out;
    EXPECT_EQ(Stream(run)["epochs"][0]["missing"], missing) << run.out;
  }

  // What people see, without --complete.
  std::string Said(const std::vector<std::string>& left_out = {}) const {
    const ForebayRun run = Audit(/*complete=*/false, left_out, /*json=*/false);
    EXPECT_EQ(run.code, 0) << run.out;
    return run.out;
  }

  std::filesystem::path folder_;
  std::vector<std::string> logs_;
  std::uint64_t clock_ = 1000;
};

TEST_F(AuditHistoryTest, ARankThatIsRestartedAloneTakesBackItsOwnBatches) {
  Log("0", {.rank = 0});
  Log("1", {.rank = 1, .end = 6});
  Log("1", {.rank = 1, .first = 4});
  ExpectWhole(Audit(), 2);
}

TEST_F(AuditHistoryTest, ARankThatIsRestartedAloneInAnotherLogTakesBackItsOwnBatches) {
  Log("0", {.rank = 0});
  Log("1", {.rank = 1, .end = 6});
  Log("1-again", {.rank = 1, .first = 4});
  ExpectWhole(Audit(), 2);
}

TEST_F(AuditHistoryTest, ARankThatIsRestartedAloneAndLeavesStepsOutIsFound) {
  Log("0", {.rank = 0});
  Log("1", {.rank = 1, .end = 4});
  Log("1", {.rank = 1, .first = 6});
  ExpectMissing(Audit(), 2 * kBatch / 2);
}

TEST_F(AuditHistoryTest, AJobThatIsRestartedOnAsManyRanksTakesBackTheBatchesOfEach) {
  Log("0", {.rank = 0});
  Log("1", {.rank = 1, .end = 7});
  Log("0", {.rank = 0, .first = 4});
  Log("1", {.rank = 1, .first = 4});
  ExpectWhole(Audit(), 4 + 3);
}

TEST_F(AuditHistoryTest, AJobThatIsRestartedOnOtherRanksTakesBackTheBatchesOfAll) {
  Log("0", {.rank = 0, .end = 6});
  Log("1", {.rank = 1, .end = 7});
  for (const std::uint64_t rank : {0, 1, 2, 3}) {
    Log(std::to_string(rank), {.ranks = 4, .rank = rank, .first = 4});
  }
  ExpectWhole(Audit(), 2 + 3);
  ExpectMissing(Audit(true, {"3"}), 4 * kBatch / 4);
}

TEST_F(AuditHistoryTest, AJobThatIsRestartedOnOtherRanksAndLeavesAStepOutIsFound) {
  Log("0", {.rank = 0, .end = 4});
  Log("1", {.rank = 1, .end = 5});
  Log("0", {.ranks = 1, .first = 5});
  ExpectMissing(Audit(), kBatch / 2);
}

TEST_F(AuditHistoryTest, RestartsOfRanksAndOfJobsFollowEachOther) {
  Log("0", {.rank = 0, .end = 5});
  Log("1", {.rank = 1, .end = 3});
  Log("1", {.rank = 1, .first = 3, .end = 5});
  Log("0", {.ranks = 1, .first = 4, .end = 6});          // takes back a step of both
  Log("0", {.rank = 0, .first = 5});                     // takes back a step of the one
  Log("1", {.rank = 1, .first = 5, .end = 7});
  Log("1-elsewhere", {.rank = 1, .first = 6});           // takes back a step of its own
  ExpectWhole(Audit(), 2 + 1 + 1);
  ExpectMissing(Audit(true, {"1-elsewhere"}), kBatch / 2);
}

TEST_F(AuditHistoryTest, InOneLogTheOrderOfOpeningsCountsAndNotTheClock) {
  Log("0", {.ranks = 1, .opened = 30});
  Log("0", {.ranks = 1, .first = 6, .end = 7, .opened = 20});
  Log("0", {.ranks = 1, .first = 4, .opened = 10});
  ExpectWhole(Audit(), 4 + 1);
}

TEST_F(AuditHistoryTest, ARankGoesOnAtANodeWhoseClockIsBehind) {
  Log("0", {.rank = 0, .opened = 100});
  Log("1", {.rank = 1, .end = 6, .opened = 100});
  Log("1-elsewhere", {.rank = 1, .first = 4, .opened = 5});
  ExpectWhole(Audit(), 2);
  // It went further than the one that goes on from what it delivered.
  Log("1-third", {.rank = 1, .first = 7, .opened = 50});
  ExpectWhole(Audit(), 2 + 1);
}

TEST_F(AuditHistoryTest, AJobGoesOnOnOtherRanksWhoseClocksAreBehind) {
  Log("0", {.rank = 0, .end = 5, .opened = 100});
  Log("1", {.rank = 1, .end = 3, .opened = 101});
  Log("1", {.rank = 1, .first = 3, .end = 5, .opened = 50});
  for (const std::uint64_t rank : {0, 1, 2, 3}) {
    Log("next-" + std::to_string(rank), {.ranks = 4, .rank = rank, .first = 4,
                                         .opened = rank % 2 == 0 ? 5U : 200U});
  }
  ExpectWhole(Audit(), 1 + 1);
}

TEST_F(AuditHistoryTest, ATokenBehindAnEpochsLastStepIsTheNextEpoch) {
  Log("0", {.ranks = 1, .end = kSteps + 2, .opened = 100, .epochs = 2});
  Log("next", {.ranks = 1, .first = kSteps, .end = 2 * kSteps, .opened = 5, .epochs = 2,
               .names_end_of_epoch = true});
  ExpectWhole(Audit(), 2);
  Log("last", {.ranks = 1, .first = 2 * kSteps, .end = 2 * kSteps, .opened = 1, .epochs = 2});
  ExpectWhole(Audit(), 2);
}

// Both restarts may have gone on from what the first opening delivered, in either order.
TEST_F(AuditHistoryTest, WhereOnlyClocksOrderRestartsTheVerdictSaysSo) {
  Log("first", {.ranks = 1, .end = 8, .opened = 10});
  Log("short", {.ranks = 1, .first = 6, .end = 7, .opened = 20});
  Log("long", {.ranks = 1, .first = 4, .opened = 30});
  ExpectWhole(Audit(), 4 + 1);
  std::filesystem::remove(Path("long"));
  Log("long", {.ranks = 1, .first = 4, .opened = 15});
  const ForebayRun run = Audit();
  EXPECT_EQ(run.code, 3) << run.out;
  EXPECT_EQ(run.last()["ok"], false);
  EXPECT_EQ(Stream(run)["outcome"], "undecided");
  EXPECT_THAT(Stream(run)["findings"].dump(), HasSubstr("opened_unix_ns"));
  EXPECT_THAT(Audit(true, {}, /*json=*/false).out,
              AllOf(HasSubstr("UNDECIDED"), Not(HasSubstr("VIOLATION"))));
}

TEST_F(AuditHistoryTest, ASampleThatNoOrderOfOpeningsDeliversIsAViolation) {
  Log("first", {.ranks = 1, .end = 7, .opened = 10});
  Log("short", {.ranks = 1, .first = 6, .end = 7, .opened = 15});
  Log("long", {.ranks = 1, .first = 4, .end = 6, .opened = 20});
  ExpectMissing(Audit(), kBatch + kBatch);
}

// Nothing but the first opening leads to where the second began, so their order is certain.
TEST_F(AuditHistoryTest, WhatARestartTookBackAndDidNotDeliverIsMissing) {
  Log("first", {.ranks = 1, .opened = 10});
  Log("again", {.ranks = 1, .first = 4, .end = 6, .opened = 5});
  ExpectMissing(Audit(), 2 * kBatch);
}

TEST_F(AuditHistoryTest, AWholeStreamIsSaidToBeWholeInTheEpochsThatWereSeen) {
  Log("0", {.ranks = 1, .first = kSteps, .end = 3 * kSteps, .epochs = 3});
  EXPECT_THAT(Said(), HasSubstr("every sample exactly once in epochs 1 to 2\n"));
}

TEST_F(AuditHistoryTest, EpochsThatAreUnfinishedOrHaveNotBegunAreNamed) {
  Log("0", {.ranks = 1, .end = 2 * kSteps + 3, .epochs = 90});
  EXPECT_THAT(Said(), HasSubstr("every sample exactly once in epochs 0 to 1; epoch 2 is "
                                "unfinished: 40 of 64 samples were not seen; epochs 3 to 89 have "
                                "not begun\n"));
  EXPECT_EQ(Stream(Audit(false))["outcome"], "unfinished");
  EXPECT_EQ(Stream(Audit(false))["end_epoch"], 90);
  EXPECT_EQ(Audit().code, 3);
}

TEST_F(AuditHistoryTest, LogsWithoutABatchProveNothing) {
  Log("0", {.rank = 0, .end = 0});
  Log("1", {.rank = 1, .end = 0});
  EXPECT_THAT(Said(), AllOf(HasSubstr("epoch 0 has not begun"), Not(HasSubstr("exactly once")),
                            Not(HasSubstr("have no log"))));
  EXPECT_EQ(Audit().code, 3);
}

TEST_F(AuditHistoryTest, RanksWithoutALogAreNamed) {
  for (const std::uint64_t rank : {0, 1, 2, 3, 4, 5, 6, 7}) {
    Log(std::to_string(rank), {.ranks = 8, .rank = rank});
  }
  EXPECT_THAT(Said(), AllOf(HasSubstr("every sample exactly once in epoch 0\n"),
                            Not(HasSubstr("have no log"))));
  EXPECT_THAT(Said({"7"}),
              AllOf(HasSubstr("epoch 0 is unfinished: 8 of 64 samples were not seen"),
                    HasSubstr("1 of 8 ranks have no log among these: rank 7\n"),
                    Not(HasSubstr("exactly once"))));
  EXPECT_THAT(Said({"0", "1", "3", "6", "7"}),
              HasSubstr("5 of 8 ranks have no log among these: rank 0 to 1, 3, 6 to 7\n"));
  const ForebayRun violation = Audit(true, {"5"});
  EXPECT_EQ(violation.code, 3);
  EXPECT_THAT(Stream(violation)["findings"].dump(), HasSubstr("rank 5"));
}

TEST_F(AuditHistoryTest, ARankThatItsNumberOfRanksDoesNotHaveIsRefused) {
  Log("0", {.ranks = 8, .rank = 7, .end = 0});
  std::ifstream file(Path("0"));
  std::string line;
  std::getline(file, line);
  Json header = Json::parse(line);
  header["rank"] = 8;
  Append("0", header.dump() + "\n");
  const ForebayRun refused = Audit();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.out, HasSubstr("0:2: the header names rank 8 of 8 ranks"));
}

// A process that was killed while it opened its stream has left a log like these.
TEST_F(AuditHistoryTest, ALogThatEndsWithinItsHeaderIsNamed) {
  Log("0", {.ranks = 1});
  for (const std::string text : {"", "{\"foreb", "{\"forebay_delivery_log\":1,\"opened"}) {
    std::filesystem::remove(Path("torn"));
    Append("torn", text);
    for (const std::vector<std::string>& logs : {std::vector<std::string>{"torn"}, {"0", "torn"}}) {
      logs_ = logs;
      EXPECT_THAT(Said(), HasSubstr("torn: ends within its header"));
      const ForebayRun run = Audit();
      EXPECT_EQ(run.code, 3) << run.out;
      EXPECT_EQ(run.last()["ok"], false);
      EXPECT_EQ(run.last()["logs_without_header"], Json::array({Path("torn")}));
    }
  }
  Append("other", "no log");
  logs_ = {"other"};
  EXPECT_THAT(Audit(false).out, HasSubstr("other: is not a delivery log"));
  EXPECT_EQ(Audit(false).code, 2);
}

}  // namespace forebay::cli::audit_history_test
