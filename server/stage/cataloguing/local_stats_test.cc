// LocalStats asks the GFS once for each batch, whoever wants it and however many wait for it, and
// keeps what it has found for a while. Faults of an injector hold calls to the GFS back.
#include "server/stage/cataloguing/local_stats.h"

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::local_stats_test {

using io::FaultKind;
using io::IoCall;
using io::testing::Pattern;
using io::testing::Take;
using ::testing::HasSubstr;

constexpr std::int64_t kMs = 1'000'000;

class LocalStatsTest : public ::testing::Test {
 protected:
  LocalStatsTest() {
    EXPECT_TRUE(memory_.AddDirectory("/gfs").has_value());
    dataset_.emplace(RecordDataset(), backend_, Take(backend_.OpenDirectory("/gfs")));
    stats_.emplace(backend_, clock_);
    CountStats();
  }
  ~LocalStatsTest() override { Release(); }

  // File i has i + 1 bytes.
  std::vector<std::string> AddFiles(std::size_t count) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < count; ++i) {
      paths.push_back("f" + std::to_string(i));
      EXPECT_TRUE(memory_.AddFile("/gfs/" + paths.back(), Pattern(i + 1)).has_value());
    }
    return paths;
  }
  // Counts calls for sizes from now on, without any fault.
  void CountStats() { faults_.Arm({.call = IoCall::kStat, .nth = ~0ULL}); }
  std::uint64_t counted() const { return faults_.candidates_seen(); }
  // Calls for sizes are answered only after Release.
  void HoldStats() {
    faults_.Arm({.kind = FaultKind::kStall, .call = IoCall::kStat, .is_persistent = true});
  }
  void AwaitHeld(std::uint64_t calls) {
    while (faults_.faults_injected() < calls) std::this_thread::yield();
  }
  void Release() {
    faults_.Disarm();
    faults_.ReleaseStalls();
  }
  using Told = std::future<Result<LocalStats::Outcome>>;
  Told Ask(const std::vector<std::string>& paths) {
    const auto promise = std::make_shared<std::promise<Result<LocalStats::Outcome>>>();
    stats_->Answer(*dataset_, paths, [promise](Result<LocalStats::Outcome> outcome) {
      promise->set_value(std::move(outcome));
    });
    return promise->get_future();
  }
  static void ExpectSizes(const catalog::StatOutcome& outcome, std::size_t count) {
    EXPECT_FALSE(outcome.error);
    ASSERT_EQ(outcome.infos.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(outcome.infos[i].bytes, i + 1);
      EXPECT_TRUE(outcome.infos[i].is_regular);
    }
  }

  io::MemoryBackend memory_;
  io::FaultInjector faults_;
  io::FaultyBackend backend_{memory_, faults_};
  io::ManualClock clock_{1'000 * kMs};
  std::optional<Dataset> dataset_;
  std::optional<LocalStats> stats_;
};

TEST_F(LocalStatsTest, TheGfsIsAskedOnceForABatchOfThisNodeAndOfOthers) {
  const std::vector<std::string> paths = AddFiles(100);
  ExpectSizes(stats_->Stat(*dataset_, paths), 100);
  EXPECT_EQ(counted(), 100U);
  ExpectSizes(**Ask(paths).get(), 100);
  ExpectSizes(stats_->Stat(*dataset_, paths), 100);
  EXPECT_EQ(counted(), 100U);
  EXPECT_EQ(dataset_->progress().gfs_stats, 100U);
  // Another batch of the same files.
  const std::vector<std::string> fewer(paths.begin(), paths.end() - 1);
  ExpectSizes(**Ask(fewer).get(), 99);
  EXPECT_EQ(dataset_->progress().gfs_stats, 199U);
}

TEST_F(LocalStatsTest, RequestsForABatchThatIsUnderWayWaitForIt) {
  const std::vector<std::string> paths = AddFiles(10);
  HoldStats();
  std::vector<Told> told;
  for (int i = 0; i < 5; ++i) told.push_back(Ask(paths));
  AwaitHeld(1);
  std::jthread own([&] { ExpectSizes(stats_->Stat(*dataset_, paths), 10); });
  Release();
  for (Told& each : told) ExpectSizes(**each.get(), 10);
  own.join();
  EXPECT_EQ(dataset_->progress().gfs_stats, 10U);
}

TEST_F(LocalStatsTest, AnOutcomeIsKeptForAWhile) {
  const std::vector<std::string> paths = AddFiles(10);
  ExpectSizes(stats_->Stat(*dataset_, paths), 10);
  clock_.AdvanceNs(limits::kPeerStatsKeptMs * kMs);
  ExpectSizes(stats_->Stat(*dataset_, paths), 10);
  EXPECT_EQ(counted(), 10U);
  clock_.AdvanceNs(1);
  ExpectSizes(stats_->Stat(*dataset_, paths), 10);
  EXPECT_EQ(counted(), 20U);
}

TEST_F(LocalStatsTest, TheOldestOutcomesGoWhenTheyTakeTooMuchMemory) {
  std::vector<std::string> paths = AddFiles(limits::kStatPathsMax);
  const std::vector<std::string> first = paths;
  const std::uint64_t kept_max =
      limits::kPeerStatsKeptBytesMax / (paths.size() * sizeof(io::FileInfo));
  // Batches of the same files in another order.
  for (std::uint64_t i = 0; i < kept_max; ++i) {
    EXPECT_EQ(stats_->Stat(*dataset_, paths).infos.size(), paths.size());
    std::rotate(paths.begin(), paths.begin() + 1, paths.end());
  }
  const std::uint64_t before = counted();
  EXPECT_EQ(before, kept_max * paths.size());
  EXPECT_EQ(stats_->Stat(*dataset_, first).infos.size(), paths.size());
  EXPECT_EQ(counted(), before) << "all of them are kept";
  EXPECT_EQ(stats_->Stat(*dataset_, paths).infos.size(), paths.size());
  EXPECT_EQ(stats_->Stat(*dataset_, first).infos.size(), paths.size());
  EXPECT_EQ(counted(), before + 2 * paths.size()) << "the first one has gone";
}

TEST_F(LocalStatsTest, WhatIsKeptOfADataSetCanBeForgotten) {
  const std::vector<std::string> paths = AddFiles(10);
  DatasetOptions options = RecordDataset();
  options.source.name = "other";
  Dataset other(options, backend_, Take(backend_.OpenDirectory("/gfs")));
  ExpectSizes(stats_->Stat(*dataset_, paths), 10);
  ExpectSizes(stats_->Stat(other, paths), 10);
  EXPECT_EQ(counted(), 20U) << "data sets have roots of their own";
  stats_->Forget(*dataset_);
  ExpectSizes(stats_->Stat(other, paths), 10);
  EXPECT_EQ(counted(), 20U);
  ExpectSizes(stats_->Stat(*dataset_, paths), 10);
  EXPECT_EQ(counted(), 30U);
}

// --- every error branch -------------------------------------------------------------------

TEST_F(LocalStatsTest, AFileThatIsMissingIsNamedAndNotKept) {
  std::vector<std::string> paths = AddFiles(10);
  paths[7] = "missing";
  for (const std::uint64_t calls : {10U, 20U}) {
    const catalog::StatOutcome outcome = stats_->Stat(*dataset_, paths);
    EXPECT_EQ(outcome.infos.size(), 7U);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), ErrorCode::kNotFound);
    EXPECT_THAT(outcome.error->message(), HasSubstr("missing"));
    EXPECT_EQ(counted(), calls);
  }
  EXPECT_EQ((**Ask(paths).get()).infos.size(), 7U);
}

TEST_F(LocalStatsTest, MoreBatchesThanMayBeUnderWayAreRefused) {
  std::vector<std::string> paths = AddFiles(limits::kPeerStatBatchesMax + 1);
  HoldStats();
  std::vector<Told> told;
  for (std::size_t i = 0; i < limits::kPeerStatBatchesMax; ++i) {
    told.push_back(Ask({paths[i]}));
  }
  const Result<LocalStats::Outcome> refused = Ask({paths.back()}).get();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  told.push_back(Ask({paths.front()}));  // of a batch that is under way
  Release();
  for (Told& each : told) EXPECT_TRUE(each.get().has_value());
  EXPECT_TRUE(Ask({paths.back()}).get().has_value());
}

TEST_F(LocalStatsTest, BatchesThatHaveNotBegunAreCancelledWhenItStops) {
  const std::vector<std::string> paths = AddFiles(limits::kPeerStatThreads + 2);
  HoldStats();
  std::vector<Told> told;
  for (const std::string& path : paths) told.push_back(Ask({path}));
  AwaitHeld(limits::kPeerStatThreads);
  stats_->BeginStop();
  EXPECT_FALSE(stats_->AwaitStopped(std::chrono::milliseconds(1)));
  std::size_t cancelled = 0;
  for (std::size_t i = limits::kPeerStatThreads; i < told.size(); ++i) {
    const Result<LocalStats::Outcome> outcome = told[i].get();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code(), ErrorCode::kCancelled);
    ++cancelled;
  }
  EXPECT_EQ(cancelled, 2U);
  Release();
  for (std::size_t i = 0; i < limits::kPeerStatThreads; ++i) {
    EXPECT_TRUE(told[i].get().has_value());
  }
  EXPECT_EQ(Ask({paths[0]}).get().error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(stats_->Stat(*dataset_, {&paths.back(), 1}).error->code(), ErrorCode::kCancelled);
  EXPECT_TRUE(stats_->AwaitStopped(std::chrono::seconds(60)));
}

TEST_F(LocalStatsTest, WithoutARequestOfAnotherNodeThereAreNoThreadsToWaitFor) {
  const std::vector<std::string> paths = AddFiles(3);
  ExpectSizes(stats_->Stat(*dataset_, paths), 3);
  stats_->BeginStop();
  EXPECT_TRUE(stats_->AwaitStopped(std::chrono::milliseconds(0)));
}

}  // namespace forebay::stage::local_stats_test
