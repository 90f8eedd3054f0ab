// What `forebay audit` makes of restarts: of one rank alone, of whole jobs on other numbers of
// ranks, and on nodes whose clocks differ; and what it claims where logs show a part only. The logs
// are written here, batch by batch, because a stream's own log has the time of this machine.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/forebay_run.h"
#include "client/cli/testing/logged_opening.h"

namespace forebay::cli::audit_history_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Opening = LoggedStream;
constexpr std::uint64_t kBatch = kLoggedBatch;
constexpr std::uint64_t kSteps = kLoggedSteps;
constexpr std::uint64_t kSamples = kLoggedSamples;

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

  // Adds an opening to the end of a log.
  void Log(const std::string& log, Opening opening) {
    if (opening.opened == 0) opening.opened = ++clock_;
    std::string text = LoggedHeader(opening);
    for (std::uint64_t step = opening.first; step < opening.end; ++step) {
      text += LoggedBatchOf(opening, step);
    }
    Append(log, text);
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
    EXPECT_EQ(Stream(run)["rests_on_clocks"], false) << run.out;
  }
  static void ExpectWholeByClocks(const ForebayRun& run, std::uint64_t taken_back) {
    ExpectOutcome(run, "whole", 0);
    EXPECT_EQ(Stream(run)["superseded_batches"], taken_back) << run.out;
    EXPECT_EQ(Stream(run)["rests_on_clocks"], true) << run.out;
    EXPECT_THAT(Stream(run)["findings"].dump(), HasSubstr("opened_unix_ns"));
  }
  static void ExpectOutcome(const ForebayRun& run, const std::string& outcome, int code) {
    EXPECT_EQ(run.code, code) << run.out;
    EXPECT_EQ(Stream(run)["outcome"], outcome) << run.out;
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

TEST_F(AuditHistoryTest, AJobThatGoesOnWithFewerEpochsIsWhole) {
  Log("0", {.rank = 0, .end = 6, .epochs = 4});
  Log("1", {.rank = 1, .end = 7, .epochs = 4});
  Log("0", {.rank = 0, .first = 4});
  // The first run's end counts as long as one rank may have gone on to it.
  EXPECT_EQ(Audit().code, 3);
  Log("1", {.rank = 1, .first = 4});
  ExpectWhole(Audit(), 2 + 3);
}

TEST_F(AuditHistoryTest, ALogThatCannotBeReadToItsEndIsAnError) {
  Log("0", {.rank = 0});
  logs_.push_back(".");  // a folder can be opened, and not be read
  const ForebayRun run = Audit();
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.out, AllOf(HasSubstr("cannot read the delivery log"), HasSubstr("to its end")));
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
  for (const std::uint64_t rank : {0U, 1U, 2U, 3U}) {
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
  // The files of the two ranks say nothing about each other: rank 1 may have gone on before the job
  // ran on one rank.
  ExpectWholeByClocks(Audit(), 2 + 1 + 1);
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
  for (const std::uint64_t rank : {0U, 1U, 2U, 3U}) {
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
  ExpectWholeByClocks(Audit(), 4 + 1);
  EXPECT_THAT(Audit(true, {}, /*json=*/false).out,
              HasSubstr("every sample exactly once in epoch 0, by the clocks of the nodes\n"));
  std::filesystem::remove(Path("long"));
  Log("long", {.ranks = 1, .first = 4, .opened = 15});
  const ForebayRun run = Audit();
  EXPECT_EQ(run.code, 3) << run.out;
  EXPECT_EQ(run.last()["ok"], false);
  EXPECT_EQ(Stream(run)["outcome"], "undecided");
  EXPECT_EQ(Stream(run)["rests_on_clocks"], true);
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
  Log("again", {.ranks = 1, .first = 4, .end = 6, .opened = 15});
  ExpectMissing(Audit(), 2 * kBatch);
}

// Whichever restart came last lacks a step, but not the same one.
TEST_F(AuditHistoryTest, ARankThatLacksAStepInEveryOrderOfItsRestartsIsFound) {
  Log("0", {.rank = 0});
  Log("1", {.rank = 1});
  Log("1-short", {.rank = 1, .first = 4, .end = 7});
  Log("1-long", {.rank = 1, .first = 5});
  std::filesystem::remove(Path("1-long"));
  Log("1-long", {.rank = 1, .first = 5, .end = 5});
  const Opening rank = {.rank = 1};
  Append("1-long", LoggedBatchOf(rank, 5) + LoggedBatchOf(rank, 7));
  const ForebayRun run = Audit();
  ExpectMissing(run, kBatch / 2);
  EXPECT_THAT(Stream(run)["findings"].dump(),
              HasSubstr("rank 1 of 2 lost samples in whatever order its restarts came"));
}

// The first run was restored at step 4, given up, and the job began from step 0 again. Without the
// log of the first run, the restart seems to have gone on from the last one.
TEST_F(AuditHistoryTest, WhereALogSeemsToBeMissingItIsNamedAndNoSampleIsSaidToBeLost) {
  Log("first", {.ranks = 1, .end = 5});
  Log("restored", {.ranks = 1, .first = 4, .end = 6});
  Log("whole", {.ranks = 1});
  ExpectWholeByClocks(Audit(), 5 + 2);
  const ForebayRun run = Audit(true, {"first"});
  ExpectOutcome(run, "undecided", 3);
  EXPECT_EQ(Stream(run)["rests_on_all_logs"], true);
  EXPECT_EQ(Stream(run)["rests_on_clocks"], false);
  EXPECT_THAT(Stream(run)["findings"].dump(),
              AllOf(HasSubstr("either a log is missing, or the clocks"),
                    HasSubstr("if the clocks are wrong, samples were lost"),
                    HasSubstr("restored:1: rank 0 of 1 begins at epoch 0, step 4, and no log of an "
                              "earlier run leads there")));
  EXPECT_THAT(Audit(true, {"first"}, /*json=*/false).out,
              AllOf(HasSubstr("UNDECIDED"), Not(HasSubstr("VIOLATION"))));
  // A sample that is lost in either case is a violation.
  std::filesystem::remove(Path("whole"));
  Log("whole", {.ranks = 1, .end = 4});
  ExpectOutcome(Audit(true, {"first"}), "violation", 3);
}

TEST_F(AuditHistoryTest, AVerdictThatHoldsOnlyIfNoLogIsMissingSaysSo) {
  Log("first", {.ranks = 1, .end = 4, .opened = 20});
  Log("next", {.ranks = 1, .first = 4, .opened = 10});
  ExpectWhole(Audit(), 0);
  EXPECT_EQ(Stream(Audit())["rests_on_all_logs"], true);
  EXPECT_THAT(Audit(true, {}, /*json=*/false).out,
              AllOf(HasSubstr("every sample exactly once in epoch 0, if no log is missing\n"),
                    HasSubstr("this verdict holds if no log is missing"),
                    HasSubstr("next:1: rank 0 of 1 begins at epoch 0, step 4")));
}

// If no log is missing, the clocks are wrong, and cannot decide between the two restarts.
TEST_F(AuditHistoryTest, AVerdictRestsOnNoClocksThatContradictTheTokens) {
  Log("first", {.ranks = 1, .end = 8, .opened = 30});
  Log("short", {.ranks = 1, .first = 6, .end = 7, .opened = 10});
  Log("long", {.ranks = 1, .first = 4, .end = 8, .opened = 20});
  ExpectWhole(Audit(true, {"short"}), 4);
  std::filesystem::remove(Path("first"));
  Log("first", {.ranks = 1, .end = 7, .opened = 30});
  const ForebayRun run = Audit();
  ExpectOutcome(run, "undecided", 3);
  EXPECT_THAT(Stream(run)["findings"].dump(),
              AllOf(HasSubstr("if a log is missing, samples were lost or repeated"),
                    Not(HasSubstr("this verdict holds"))));
}

TEST_F(AuditHistoryTest, OnlyAFewOpeningsThatNoLogLeadsToAreNamed) {
  for (const std::uint64_t rank : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U}) {
    Log(std::to_string(rank), {.ranks = 8, .rank = rank, .first = 2});
  }
  Log("0-again", {.ranks = 8, .rank = 0, .first = 10, .epochs = 2});
  Log("1-again", {.ranks = 8, .rank = 1, .first = 10, .epochs = 2});
  const ForebayRun run = Audit();
  ExpectMissing(run, 2 * kBatch);
  EXPECT_THAT(Stream(run)["findings"].dump(),
              AllOf(HasSubstr("rank 7 of 8 begins at epoch 0, step 2"),
                    Not(HasSubstr("epoch 1, step 2")),
                    HasSubstr("2 other openings begin where no log leads to")));
}

TEST_F(AuditHistoryTest, ALogThatIsGivenTwiceIsRefused) {
  Log("0", {.ranks = 1, .end = 5});
  std::filesystem::copy_file(Path("0"), Path("copy"));
  Log("0", {.ranks = 1, .first = 5});
  ExpectWhole(Audit(), 0);
  logs_.push_back("copy");
  const ForebayRun refused = Audit();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.out, AllOf(HasSubstr("copy:1: is the same opening as"), HasSubstr("0:1: "),
                                 HasSubstr("give each log once")));
}

// Each restart goes on from a checkpoint that the run before it has written, so no clock is needed.
TEST_F(AuditHistoryTest, RestartsInFilesOfTheirOwnThatGoOnFromEachOtherNeedNoClock) {
  Log("1", {.ranks = 1, .end = 3, .opened = 40});
  Log("2", {.ranks = 1, .first = 2, .end = 5, .opened = 30});
  Log("3", {.ranks = 1, .first = 4, .end = 7, .opened = 20});
  Log("4", {.ranks = 1, .first = 6, .opened = 10});
  ExpectWhole(Audit(), 3);
  ExpectOutcome(Audit(true, {"2"}), "violation", 3);
}

TEST_F(AuditHistoryTest, JobsThatGoOnFromEachOtherOnOtherRanksNeedNoClock) {
  const auto log_job = [this](std::uint64_t ranks, std::uint64_t first, std::uint64_t end,
                              std::uint64_t opened) {
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      Log(std::to_string(opened) + "-" + std::to_string(rank),
          {.ranks = ranks, .rank = rank, .first = first, .end = end, .opened = opened});
    }
  };
  log_job(2, 0, 3, 40);
  log_job(4, 2, 5, 30);
  log_job(2, 4, 7, 20);
  log_job(1, 6, 8, 10);
  ExpectWhole(Audit(), 2 + 4 + 2);
}

// A job that fails again before its next checkpoint is restored from the same one. Then the files
// of its runs say nothing about which came last.
TEST_F(AuditHistoryTest, TwoRestartsFromOneCheckpointRestOnClocksUnlessTheyShareAFile) {
  for (const bool share : {true, false}) {
    const std::string run = share ? "a" : "b";
    logs_.clear();
    Log(run, {.ranks = 1, .end = 6});
    Log(run + (share ? "" : "2"), {.ranks = 1, .first = 4, .end = 5});
    Log(run + (share ? "" : "3"), {.ranks = 1, .first = 4});
    if (share) ExpectWhole(Audit(), 2 + 1);
    if (!share) ExpectWholeByClocks(Audit(), 2 + 1);
  }
}

// Whether the last steps were not delivered yet, or taken back, also rests on clocks.
TEST_F(AuditHistoryTest, AnUnfinishedStreamMayRestOnClocks) {
  Log("first", {.ranks = 1, .end = 6, .opened = 10});
  Log("short", {.ranks = 1, .first = 3, .end = 4, .opened = 30});
  Log("long", {.ranks = 1, .first = 2, .opened = 20});
  ExpectOutcome(Audit(false), "unfinished", 0);
  EXPECT_EQ(Stream(Audit(false))["rests_on_clocks"], true);
  ExpectOutcome(Audit(), "undecided", 3);
}

// Without --complete the job may have been stopped in the short restart, and lost nothing.
TEST_F(AuditHistoryTest, AJobThatHasEndedIsDecidedByComplete) {
  Log("first", {.ranks = 1, .end = 6, .opened = 10});
  Log("short", {.ranks = 1, .first = 3, .end = 4, .opened = 20});
  Log("long", {.ranks = 1, .first = 2, .end = 5, .opened = 30});
  Append("long", LoggedBatchOf({.ranks = 1}, 7));
  ExpectOutcome(Audit(false), "undecided", 3);
  EXPECT_THAT(Stream(Audit(false))["findings"].dump(),
              HasSubstr("If the job has ended, use --complete"));
  ExpectOutcome(Audit(), "violation", 3);
}

TEST_F(AuditHistoryTest, AStreamThatBeginsAtALaterEpochLacksNoLog) {
  Log("0", {.rank = 0, .first = kSteps, .end = kSteps + 3, .epochs = 2});
  Log("1", {.rank = 1, .first = kSteps, .end = kSteps + 4, .epochs = 2});
  EXPECT_THAT(Said(), AllOf(HasSubstr("epoch 1 is unfinished"), Not(HasSubstr("leads there"))));
  Log("1-again", {.rank = 1, .first = kSteps + 5, .end = kSteps + 6, .epochs = 2});
  EXPECT_THAT(Said(), HasSubstr("1-again:1: rank 1 of 2 begins at epoch 1, step 5"));
}

// The log of the run that went from step 0 on was removed, so both restarts may go on from it.
TEST_F(AuditHistoryTest, WithoutTheFirstLogsClocksOrderRestarts) {
  Log("1", {.ranks = 1, .end = kSteps + 5, .opened = 10, .epochs = 2});
  Log("2", {.ranks = 1, .first = kSteps + 4, .end = kSteps + 6, .opened = 20, .epochs = 2});
  Log("3", {.ranks = 1, .first = kSteps, .end = 2 * kSteps, .opened = 30, .epochs = 2});
  ExpectWholeByClocks(Audit(true, {"1"}), 2);
  std::filesystem::remove(Path("3"));
  Log("3", {.ranks = 1, .first = kSteps, .end = 2 * kSteps, .opened = 15, .epochs = 2});
  ExpectOutcome(Audit(true, {"1"}), "undecided", 3);
}

TEST_F(AuditHistoryTest, ATokenBehindAnEpochsLastStepIsTheNextEpochAlsoWithoutTheLogsBefore) {
  Log("0", {.ranks = 1, .first = kSteps, .end = 2 * kSteps, .epochs = 2,
            .names_end_of_epoch = true});
  ExpectWhole(Audit(), 0);
  EXPECT_EQ(Stream(Audit())["epochs"].size(), 1U);
  EXPECT_THAT(Said(), HasSubstr("every sample exactly once in epoch 1\n"));
}

TEST_F(AuditHistoryTest, LogsThatBeginWhereTheStreamEndsProveNothing) {
  for (const bool names_end : {true, false}) {
    logs_.clear();
    const std::string log = names_end ? "token" : "epoch";
    Log(log, {.ranks = 1, .first = 2 * kSteps, .end = 2 * kSteps, .epochs = 2,
              .names_end_of_epoch = names_end});
    for (const bool complete : {true, false}) {
      ExpectOutcome(Audit(complete), "undecided", 3);
      EXPECT_THAT(Audit(complete, {}, /*json=*/false).out,
                  AllOf(HasSubstr("the logs begin where the stream ends"),
                        Not(HasSubstr("begun"))));
    }
  }
}

// A program may pull a batch by name that lies before the place where its stream began.
TEST_F(AuditHistoryTest, ABatchOfAnEpochBeforeTheStreamsFirstIsJudged) {
  Log("0", {.ranks = 1, .first = kSteps, .end = kSteps, .epochs = 1});
  Append("0", R"({"epoch":0,"step":0,"position":0,"ids":[0,1,2,3,4,5,6,7]})" "\n");
  EXPECT_THAT(Said(), HasSubstr("epoch 0 is unfinished: 56 of 64 samples were not seen"));
  ExpectMissing(Audit(), kSamples - kBatch);
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
  for (const std::uint64_t rank : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U}) {
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
      EXPECT_THAT(Said(), HasSubstr("torn: ends within a header"));
      const ForebayRun run = Audit();
      EXPECT_EQ(run.code, 3) << run.out;
      EXPECT_EQ(run.last()["ok"], false);
      EXPECT_EQ(run.last()["logs_without_header"], Json::array({Path("torn")}));
    }
  }
  // A restart was killed while it wrote its header behind those of other runs. Its rank may have
  // gone back, so steps may be missing that were delivered before.
  for (const std::string text :
       {"{\"f", "{\"forebay_delivery_log\":1,", "{\"epo\n{", "{\"forebay\n"}) {
    logs_.clear();
    std::filesystem::remove(Path("0"));
    Log("0", {.ranks = 1});
    Append("0", text);
    EXPECT_THAT(Said(), AllOf(HasSubstr("0: ends within a header"), HasSubstr("exactly once")));
    EXPECT_EQ(Audit().code, 3) << text;
    EXPECT_EQ(Audit().last()["logs_without_header"], Json::array({Path("0")}));
  }
  // The line of a batch that nobody has seen.
  std::filesystem::remove(Path("0"));
  Log("0", {.ranks = 1});
  Append("0", "{\"");
  EXPECT_EQ(Audit().code, 0);
  Append("other", "no log");
  logs_ = {"other"};
  EXPECT_THAT(Audit(false).out, HasSubstr("other: is not a delivery log"));
  EXPECT_EQ(Audit(false).code, 2);
}

// The disk was full when the first run wrote a batch, and still when it was restarted.
TEST_F(AuditHistoryTest, HalfALineAndHalfHeadersBehindItArePassedOver) {
  Log("0", {.ranks = 1, .end = 4});
  Append("0", "{\"epoch\":0,\"st\n{\"foreb\n{\n");
  Log("0", {.ranks = 1, .first = 4});
  ExpectWhole(Audit(), 0);
  EXPECT_EQ(Audit().last()["logs_without_header"], Json::array());
  Append("0", "{\"epoch\":0,\"st\n{\"epoch\":0,\n");
  Log("0", {.ranks = 1, .first = 4});
  EXPECT_EQ(Audit().code, 2) << "no run begins a line with a batch behind half a line";
  EXPECT_THAT(Audit().out, HasSubstr("0:14: is not a JSON object"));
}

}  // namespace forebay::cli::audit_history_test
