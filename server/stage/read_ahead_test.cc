// Extents that streams need soon are read while nobody waits for others, and take no memory from
// what is needed sooner.
#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/stager.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::read_ahead_test {

using io::FaultKind;
using io::IoCall;
using io::testing::Pattern;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kFileBytes = 520'000;  // 8 extents
constexpr std::uint64_t kExtentBytes = 65'000;

// The extents that the test names, in this order.
class NamedReads final : public UpcomingReads {
 public:
  void Name(Dataset& dataset, std::vector<std::uint32_t> extents) {
    const std::lock_guard lock(mutex_);
    for (const std::uint32_t extent : extents) {
      named_.push_back({.dataset = &dataset, .extent = ExtentId(extent), .stream = 7});
    }
  }
  std::optional<UpcomingExtent> Take() override {
    const std::lock_guard lock(mutex_);
    if (on_take_) on_take_();
    if (named_.empty()) return std::nullopt;
    const UpcomingExtent next = named_.front();
    named_.pop_front();
    return next;
  }
  void PutBack(const UpcomingExtent& refused) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(refused.stream, 7U);
    refused_.push_back(refused.extent.value());
  }
  std::size_t left() const {
    const std::lock_guard lock(mutex_);
    return named_.size();
  }
  void OnTake(std::function<void()> on_take) {
    const std::lock_guard lock(mutex_);
    on_take_ = std::move(on_take);
  }
  std::vector<std::uint32_t> refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<UpcomingExtent> named_;
  std::vector<std::uint32_t> refused_;
  std::function<void()> on_take_;
};

class ReadAheadTest : public ::testing::Test {
 protected:
  ReadAheadTest() {
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes, 1)).has_value());
  }
  // A data set that has its catalog; nothing is staged, because nothing has a home, unless `homes`.
  void Start(RigOptions options = {}, bool homes = false) {
    options.upcoming = &upcoming_;
    if (!homes) options.reserve_bytes = options.ram_bytes / 1000 * 940;
    FOREBAY_EXPECT_OK(rig_.Start(RecordDataset(), options));
    if (!homes) FOREBAY_EXPECT_OK(rig_.StageAll());
    read_before_ = rig_.dataset().progress().gfs_bytes;
  }
  void ReadAhead(std::vector<std::uint32_t> extents) {
    upcoming_.Name(rig_.dataset(), std::move(extents));
    rig_.stager().LookAhead();
  }
  bool IsOnATier(std::uint32_t extent) {
    return rig_.cache().Holds(rig_.dataset().key(ExtentId(extent)));
  }
  void AwaitOnATier(std::uint32_t extent) {
    while (!IsOnATier(extent)) std::this_thread::yield();
  }
  void AwaitRefusals(std::size_t count) {
    while (upcoming_.refused().size() < count) std::this_thread::yield();
  }
  std::uint64_t extents_read() {
    return (rig_.dataset().progress().gfs_bytes - read_before_) / kExtentBytes;
  }

  io::MemoryBackend memory_;
  NamedReads upcoming_;
  StageRig rig_{memory_, ""};
  std::uint64_t read_before_ = 0;
};

TEST_F(ReadAheadTest, WhatIsNeededSoonIsReadWithoutADemand) {
  Start();
  ReadAhead({6, 2, 5});
  for (const std::uint32_t extent : {6U, 2U, 5U}) AwaitOnATier(extent);
  EXPECT_EQ(extents_read(), 3U);
  EXPECT_FALSE(IsOnATier(0));
  FOREBAY_EXPECT_OK(rig_.Verify(ExtentId(5)));
}

TEST_F(ReadAheadTest, WhatIsOnATierIsNotReadAgain) {
  Start();
  FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(2)));
  ReadAhead({2, 4});
  AwaitOnATier(4);
  EXPECT_EQ(extents_read(), 2U);
}

// Every read stands still, so a thread that reads ahead is not free again.
TEST_F(ReadAheadTest, ThreadsReadSeveralAtOnceAndLeaveOneForDemands) {
  for (const std::uint32_t readers : {2U, 3U, 4U}) {
    Start({.ram_bytes = 16 << 20, .readers = readers, .request_bytes = 128 << 10});
    const std::uint64_t before = rig_.gfs_faults.faults_injected();
    const auto stalled = [&] { return rig_.gfs_faults.faults_injected() - before; };
    rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead, .is_persistent = true});
    ReadAhead({0, 1, 2, 3, 4});
    while (stalled() < readers - 1) std::this_thread::yield();
    std::promise<Status> told;
    rig_.stager().Demand(rig_.dataset(), ExtentId(7),
                         [&](const Status& status) { told.set_value(status); });
    while (stalled() < readers) std::this_thread::yield();
    // The place of the demand is free again, and still nothing more is read ahead.
    EXPECT_EQ(upcoming_.left(), 5 - (readers - 1));
    rig_.gfs_faults.Disarm();
    rig_.gfs_faults.ReleaseStalls();
    FOREBAY_EXPECT_OK(told.get_future().get());
    for (std::uint32_t extent = 0; extent < 5; ++extent) AwaitOnATier(extent);
    // An extent is on a tier a moment before it is counted, and the end of the rig ends all loads.
    Dataset& dataset = rig_.dataset();
    while (dataset.progress().gfs_bytes < read_before_ + 6 * kExtentBytes) {
      std::this_thread::yield();
    }
    EXPECT_EQ(extents_read(), 6U) << "each once";
    rig_.Stop();
  }
}

TEST_F(ReadAheadTest, ItHasOnlyAPartOfTheMemoryUnderWay) {
  // An eighth of the memory is two extents and a little: the third one is the last.
  Start({.ram_bytes = (16 << 16) + (1 << 16), .readers = 8, .request_bytes = 128 << 10});
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead, .is_persistent = true});
  ReadAhead({0, 1, 2, 3, 4});
  while (rig_.gfs_faults.faults_injected() < 3) std::this_thread::yield();
  std::promise<Status> told;
  rig_.stager().Demand(rig_.dataset(), ExtentId(7),
                       [&](const Status& status) { told.set_value(status); });
  while (rig_.gfs_faults.faults_injected() < 4) std::this_thread::yield();
  EXPECT_EQ(upcoming_.left(), 2U);
  rig_.gfs_faults.Disarm();
  rig_.gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(told.get_future().get());
  for (std::uint32_t extent = 0; extent < 5; ++extent) AwaitOnATier(extent);
}

// An extent that passes through RAM on its way to SSD.
TEST_F(ReadAheadTest, WhatGoesToSsdTakesTheHomeOfNobody) {
  EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
  Start({.ram_bytes = 512 << 10,
         .reserve_bytes = 256 << 10,
         .ssd_bytes = 4 << 20,
         .next_use = [](const tier::ExtentKey&, std::uint64_t) -> std::uint64_t { return 50; }},
        /*homes=*/true);
  FOREBAY_EXPECT_OK(rig_.StageAll());
  ASSERT_EQ(rig_.dataset().home(ExtentId(7)), plan::HomeTier::kSsd);
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(7)), std::nullopt));
  std::vector<tier::ArenaBlock> hoard;
  while (rig_.arena().largest_free_bytes() > 0) {
    auto block = rig_.arena().Allocate(rig_.arena().largest_free_bytes());
    if (!block.has_value()) break;
    hoard.push_back(std::move(*block));
  }
  const std::uint64_t in_ram = rig_.cache().stats(tier::TierKind::kRam).extents;
  ASSERT_GT(in_ram, 0U);
  ReadAhead({7});
  AwaitRefusals(1);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).extents, in_ram);
  hoard.clear();
  ReadAhead({7});
  AwaitOnATier(7);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).extents, in_ram);
}

TEST_F(ReadAheadTest, ADemandJoinsTheReadThatIsUnderWay) {
  Start();
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  ReadAhead({3});
  while (rig_.gfs_faults.faults_injected() < 1) std::this_thread::yield();
  std::promise<Status> told;
  rig_.stager().Demand(rig_.dataset(), ExtentId(3),
                       [&](const Status& status) { told.set_value(status); });
  rig_.gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(told.get_future().get());
  EXPECT_EQ(extents_read(), 1U);
}

// Extents 1 and 3 are needed last.
TEST_F(ReadAheadTest, ItTakesThePlaceOnlyOfWhatIsNeededLater) {
  const auto next_use = [this](const tier::ExtentKey& key, std::uint64_t) -> std::uint64_t {
    const std::uint32_t extent = rig_.dataset().ExtentOf(key)->value();
    return extent == 1 || extent == 3 ? 50 : 5 + extent;
  };
  Start({.ram_bytes = 3 << 16, .next_use = next_use});  // three extents fit
  for (const std::uint32_t extent : {0U, 1U, 2U}) {
    FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(extent)));
  }
  ReadAhead({4});
  AwaitOnATier(4);
  EXPECT_FALSE(IsOnATier(1)) << "the one that is needed last";
  EXPECT_TRUE(IsOnATier(0) && IsOnATier(2));
  ReadAhead({3});
  AwaitRefusals(1);
  EXPECT_THAT(upcoming_.refused(), ElementsAre(3));
  EXPECT_TRUE(IsOnATier(0) && IsOnATier(2) && IsOnATier(4));
  EXPECT_EQ(extents_read(), 4U) << "what finds no memory is not read";
  // A later one is taken all the same: what was refused has not stopped the threads.
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(2)), std::nullopt));
  ReadAhead({6});
  AwaitOnATier(6);
}

// The extents of one window are needed at nearly the same step. If they do not fit together, one
// must not be read in the place of the other.
TEST_F(ReadAheadTest, WhatIsNeededEquallySoonStays) {
  Start({.ram_bytes = 3 << 16,
         .next_use = [](const tier::ExtentKey&, std::uint64_t) -> std::uint64_t { return 50; }});
  for (const std::uint32_t extent : {0U, 1U, 2U}) {
    FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(extent)));
  }
  ReadAhead({4});
  AwaitRefusals(1);
  EXPECT_TRUE(IsOnATier(0) && IsOnATier(1) && IsOnATier(2));
  EXPECT_EQ(extents_read(), 3U);
}

TEST_F(ReadAheadTest, AnErrorOfTheGfsIsNobodys) {
  Start();
  rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead});
  ReadAhead({3});
  while (rig_.gfs_faults.faults_injected() < 1) std::this_thread::yield();
  ReadAhead({4});
  AwaitOnATier(4);
  EXPECT_FALSE(IsOnATier(3));
  EXPECT_THAT(upcoming_.refused(), IsEmpty());
  EXPECT_EQ(rig_.dataset().progress().state, DatasetState::kStaged);
  // The first demand may still join the read that fails.
  if (!rig_.Demand(ExtentId(3)).has_value()) FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(3)));
  FOREBAY_EXPECT_OK(rig_.Verify(ExtentId(3)));
}

// A pass stages extents that have a home. What it has passed while that was read ahead in vain must
// not be forgotten.
TEST_F(ReadAheadTest, AnErrorDuringAPassFailsItOnlyIfSomebodyWaits) {
  Start({}, /*homes=*/true);
  FOREBAY_EXPECT_OK(rig_.StageAll());
  Dataset& dataset = rig_.dataset();
  for (const bool waits : {false, true}) {
    std::vector<bool> resident(rig_.extent_count(), true);
    resident[3] = false;
    ASSERT_TRUE(dataset.BeginStagingAgain(resident, 1));
    ASSERT_TRUE(dataset.Claim(ExtentId(3)));
    EXPECT_FALSE(dataset.ClaimNext(2));
    bool is_told = false;
    if (waits) {
      ASSERT_FALSE(dataset.Join(ExtentId(3), [&](const Status& status) {
        is_told = !status.has_value();
      }));
    }
    EXPECT_TRUE(dataset.Report(ExtentId(3), Error(ErrorCode::kDataLoss, "bad"), 3, true));
    EXPECT_EQ(is_told, waits);
    EXPECT_EQ(dataset.progress().state, waits ? DatasetState::kFailed : DatasetState::kStaged);
  }
}

TEST_F(ReadAheadTest, ItGoesBeforeTheRestOfTheDataSetAndAfterDemands) {
  Start({.readers = 1}, /*homes=*/true);
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  rig_.stager().Stage(rig_.dataset());
  while (rig_.gfs_faults.faults_injected() < 1) std::this_thread::yield();  // extent 0
  std::vector<std::uint64_t> read_at_takes;
  upcoming_.OnTake([&] { read_at_takes.push_back(rig_.dataset().progress().gfs_bytes); });
  ReadAhead({6});
  std::promise<Status> told;
  rig_.stager().Demand(rig_.dataset(), ExtentId(5),
                       [&](const Status& status) { told.set_value(status); });
  rig_.gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(told.get_future().get());
  FOREBAY_EXPECT_OK(AwaitPassEnd(rig_.dataset()));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  rig_.Stop();
  ASSERT_GE(read_at_takes.size(), 2U);
  EXPECT_EQ(read_at_takes[0], 2 * kExtentBytes) << "extents 0 and 5 went before it";
  EXPECT_EQ(read_at_takes[1], 3 * kExtentBytes) << "and nothing else";
}

TEST_F(ReadAheadTest, TheEndOfTheDaemonEndsIt) {
  for (int round = 0; round < 20; ++round) {
    Start({.readers = 4});
    const std::uint64_t before = rig_.gfs_faults.faults_injected();
    rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
    ReadAhead({0, 1, 2, 3, 4, 5, 6, 7});
    while (rig_.gfs_faults.faults_injected() == before) std::this_thread::yield();
    {
      const std::jthread release([this] { rig_.gfs_faults.ReleaseStalls(); });
      rig_.Stop();
    }
    while (upcoming_.Take()) {
    }
    EXPECT_EQ(memory_.open_file_count(), 0U);
  }
}

}  // namespace forebay::stage::read_ahead_test
