// What a node that leaves the job has is staged from there, not from the GFS.
#include "server/stage/hand_over.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/local_extents.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::hand_over_test {

using io::testing::Pattern;

constexpr std::uint64_t kFileBytes = 2'048'000;  // in 32 extents
constexpr NodeRank kHere{0};
constexpr NodeRank kLeaves{1};

// The other node, as this one asks it.
class OtherNode final : public ExtentSource {
 public:
  explicit OtherNode(StageRig& rig) : rig_(rig) {}
  Result<SuppliedExtent> Read(const ExtentRequest& request, const AllocateImage& allocate,
                              io::IoQueue& queue) override {
    ++asked;
    if (!answers) return Error(ErrorCode::kUnavailable, "no answer");
    LocalExtents local(rig_.cache(), rig_.stager(), clock_);
    return local.Read(rig_.dataset(), request.catalog.fingerprint(), request.extent, allocate,
                      queue);
  }
  std::atomic<bool> answers = true;
  std::atomic<std::uint32_t> asked = 0;

 private:
  StageRig& rig_;
  io::SteadyClock clock_;
};

class HandOverTest : public ::testing::Test {
 protected:
  HandOverTest() { EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes)).has_value()); }

  void Start(std::uint64_t ram_bytes = 8 << 20) {
    DatasetOptions dataset = RecordDataset();
    dataset.group_bytes = 1;  // so that the nodes share the data set, extent by extent
    FOREBAY_EXPECT_OK(other_.Start(dataset, {.nodes = &seen_by_other_, .peers = &nobody_}));
    FOREBAY_EXPECT_OK(other_.StageAll());
    FOREBAY_EXPECT_OK(
        here_.Start(dataset, {.ram_bytes = ram_bytes, .nodes = &nodes_, .peers = &source_}));
    FOREBAY_EXPECT_OK(here_.StageAll());
    for (std::uint32_t extent = 0; extent < here_.extent_count(); ++extent) {
      if (!nodes_.Reads(here_.dataset().group_key(ExtentId(extent)))) theirs_.push_back(extent);
    }
    ASSERT_GT(theirs_.size(), 4U);
    ASSERT_LT(theirs_.size(), 28U);
    hand_over_.emplace(here_.stager(),
                       [this] { return std::vector<Dataset*>{&here_.dataset()}; });
    here_.CountGfsReads();
    other_.CountGfsReads();
  }
  // The other node leaves, and this one takes over.
  void TakeOver() {
    nodes_.SetLeaves(kLeaves, true);
    hand_over_->Begin();
    AwaitTakenOver();
  }
  void AwaitTakenOver() {
    std::mutex mutex;
    std::condition_variable pause;
    while (!hand_over_->Look()) {
      // Polled, as the daemon polls it; nothing is decided by the pause.
      std::unique_lock lock(mutex);
      pause.wait_for(lock, std::chrono::microseconds(200));
    }
  }
  ExtentId OwnExtent() {
    std::uint32_t extent = 0;
    while (!nodes_.Reads(here_.dataset().group_key(ExtentId(extent)))) ++extent;
    return ExtentId(extent);
  }
  std::size_t Resident() {
    std::size_t count = 0;
    for (const std::uint32_t extent : theirs_) {
      if (here_.cache().Find(here_.dataset().key(ExtentId(extent)))) ++count;
    }
    return count;
  }

  io::MemoryBackend memory_;
  plan::Membership nodes_{kHere, {{kHere, 1, 1}, {kLeaves, 1, 2}}};
  plan::Membership seen_by_other_{kLeaves, {{kHere, 1, 1}, {kLeaves, 1, 2}}};
  StageRig other_{memory_, ""};
  StageRig here_{memory_, ""};
  OtherNode source_{other_};
  OtherNode nobody_{here_};  // the other node asks for nothing
  std::optional<HandOver> hand_over_;
  std::vector<std::uint32_t> theirs_;  // extents that the other node owns
};

TEST_F(HandOverTest, WhatTheOtherNodeHasComesFromThere) {
  Start();
  EXPECT_EQ(Resident(), 0U);
  EXPECT_FALSE(here_.dataset().pass_takes_over());
  TakeOver();
  EXPECT_TRUE(here_.dataset().pass_takes_over());
  EXPECT_EQ(Resident(), theirs_.size());
  EXPECT_EQ(source_.asked, theirs_.size());
  EXPECT_EQ(here_.gfs_reads() + other_.gfs_reads(), 0U);
  FOREBAY_EXPECT_OK(here_.VerifyAll());
  for (const std::uint32_t extent : theirs_) {
    EXPECT_FALSE(here_.dataset().IsRemote(ExtentId(extent))) << extent;
    EXPECT_FALSE(here_.dataset().IsGuestInRam(ExtentId(extent))) << extent;
  }
}

TEST_F(HandOverTest, ADemandBeforeThatIsAnsweredFromThereToo) {
  Start();
  nodes_.SetLeaves(kLeaves, true);
  FOREBAY_EXPECT_OK(here_.Demand(ExtentId(theirs_.front())));
  EXPECT_EQ(source_.asked, 1U);
  EXPECT_EQ(here_.gfs_reads() + other_.gfs_reads(), 0U);
  TakeOver();
  EXPECT_EQ(source_.asked, theirs_.size());
  EXPECT_EQ(Resident(), theirs_.size());
}

// Room for what it owns, and for four extents more.
TEST_F(HandOverTest, OnlyWhatThereIsRoomForIsTakenOver) {
  Start();
  const std::uint64_t own = 32 - theirs_.size();
  here_.Stop();
  DatasetOptions dataset = RecordDataset();
  dataset.group_bytes = 1;
  FOREBAY_EXPECT_OK(here_.Start(dataset, {.ram_bytes = (own + 4) * (64 << 10),
                                          .nodes = &nodes_,
                                          .peers = &source_}));
  FOREBAY_EXPECT_OK(here_.StageAll());
  hand_over_.emplace(here_.stager(), [this] { return std::vector<Dataset*>{&here_.dataset()}; });
  here_.CountGfsReads();
  TakeOver();
  EXPECT_GT(Resident(), 0U);
  EXPECT_LE(Resident(), 4U);
  EXPECT_EQ(here_.gfs_reads() + other_.gfs_reads(), 0U);
}

TEST_F(HandOverTest, ANodeThatDoesNotAnswerAnyMoreIsReplacedByTheGfs) {
  Start();
  source_.answers = false;
  TakeOver();
  EXPECT_EQ(Resident(), theirs_.size());
  EXPECT_GE(source_.asked, 1U) << "the fault did not happen";
  EXPECT_GE(here_.gfs_reads(), theirs_.size());
  FOREBAY_EXPECT_OK(here_.VerifyAll());
}

// The SSD was full when the own share was staged, and RAM has no space for more.
TEST_F(HandOverTest, AnSsdThatIsFullIsNoPlaceForWhatIsTakenOver) {
  Start();
  const std::uint64_t own = 32 - theirs_.size();
  here_.Stop();
  EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
  here_.ssd_faults.Arm(
      {.kind = io::FaultKind::kEnospc, .call = io::IoCall::kWrite, .is_persistent = true});
  DatasetOptions dataset = RecordDataset();
  dataset.group_bytes = 1;
  FOREBAY_EXPECT_OK(here_.Start(dataset, {.ram_bytes = own / 2 * (64 << 10),
                                          .ssd_bytes = 64 << 20,
                                          .nodes = &nodes_,
                                          .peers = &source_}));
  FOREBAY_EXPECT_OK(here_.StageAll());
  EXPECT_GT(here_.ssd_faults.faults_injected(), 0U);
  hand_over_.emplace(here_.stager(), [this] { return std::vector<Dataset*>{&here_.dataset()}; });
  TakeOver();
  EXPECT_EQ(source_.asked, 0U) << "there is no space for what would come";
  here_.ssd_faults.Disarm();
  FOREBAY_EXPECT_OK(here_.StageAll());  // forebay stage
  EXPECT_EQ(source_.asked, theirs_.size());
  here_.Stop();  // it uses what ends before it
}

// It is retired because of reads, so it has refused no extent. Two copies are on it, and are still
// read.
TEST_F(HandOverTest, AnSsdThatIsLostIsNoPlaceForCopies) {
  Start();
  const std::uint64_t own = 32 - theirs_.size();
  here_.Stop();
  EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
  DatasetOptions dataset = RecordDataset();
  dataset.group_bytes = 1;
  dataset.copy_bytes = 2 * (64 << 10);
  FOREBAY_EXPECT_OK(here_.Start(dataset, {.ram_bytes = (own - 4) * (64 << 10),
                                          .ssd_bytes = 64 << 20,
                                          .nodes = &nodes_,
                                          .peers = &source_}));
  FOREBAY_EXPECT_OK(here_.StageAll());
  ASSERT_EQ(source_.asked, 2U);
  std::vector<ExtentId> wanted;
  for (const std::uint32_t i : theirs_) {
    if (here_.dataset().home(ExtentId(i)) == plan::HomeTier::kNone) wanted.emplace_back(i);
  }
  ASSERT_EQ(wanted.size(), theirs_.size() - 2);
  for (std::uint32_t i = 0; i < here_.extent_count(); ++i) {
    const tier::ExtentRef found = here_.cache().Find(here_.dataset().key(ExtentId(i)));
    if (!found || found->tier != tier::TierKind::kSsd || here_.dataset().IsRemote(ExtentId(i))) {
      continue;
    }
    here_.cache().ReportBad(found, Error::FromErrno(EIO, "reading"), here_.clock().NowNs());
  }
  ASSERT_TRUE(here_.cache().stats(tier::TierKind::kSsd).retired);
  const auto wish = here_.stager().PreferCopies(here_.dataset(), wanted);
  FOREBAY_EXPECT_OK(AwaitPassEnd(here_.dataset()));
  EXPECT_EQ(source_.asked, 2U);
  EXPECT_EQ(Resident(), 2U);
}

TEST_F(HandOverTest, ADataSetWithoutACatalogHasNothingToTakeOver) {
  FOREBAY_EXPECT_OK(here_.Start(RecordDataset(), {.nodes = &nodes_, .peers = &source_}));
  hand_over_.emplace(here_.stager(), [this] { return std::vector<Dataset*>{&here_.dataset()}; });
  hand_over_->Begin();
  EXPECT_TRUE(hand_over_->Look());
  EXPECT_EQ(here_.dataset().catalog(), nullptr) << "nothing was begun";
}

TEST_F(HandOverTest, APassThatBeganBeforeTheNewsIsFollowedByAnother) {
  Start();
  FOREBAY_EXPECT_OK(here_.cache().Evict(here_.dataset().key(OwnExtent()), std::nullopt));
  here_.gfs_faults.Arm(
      {.kind = io::FaultKind::kStall, .call = io::IoCall::kRead, .is_persistent = true});
  here_.stager().Stage(here_.dataset());
  nodes_.SetLeaves(kLeaves, true);
  hand_over_->Begin();
  EXPECT_FALSE(hand_over_->Look());
  here_.gfs_faults.Disarm();
  here_.gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(AwaitPassEnd(here_.dataset()));
  EXPECT_EQ(Resident(), 0U) << "the pass knew nothing of the news";
  AwaitTakenOver();
  EXPECT_EQ(Resident(), theirs_.size());
}

// All threads of the stager are busy.
TEST_F(HandOverTest, TheThreadThatLooksPreparesNothing) {
  Start();
  here_.gfs_faults.Arm(
      {.kind = io::FaultKind::kStall, .call = io::IoCall::kRead, .is_persistent = true});
  constexpr std::size_t kThreads = 3;  // two, and the one that never asks another node
  std::vector<std::promise<void>> loaded(kThreads);
  for (std::uint32_t i = 0, demanded = 0; demanded < kThreads; ++i) {
    const ExtentId extent(i);
    if (!nodes_.Reads(here_.dataset().group_key(extent))) continue;
    FOREBAY_EXPECT_OK(here_.cache().Evict(here_.dataset().key(extent), std::nullopt));
    here_.stager().Demand(here_.dataset(), extent,
                          [&told = loaded[demanded]](const Status&) { told.set_value(); });
    ++demanded;
  }
  nodes_.SetLeaves(kLeaves, true);
  hand_over_->Begin();
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(hand_over_->Look());
  for (const std::uint32_t extent : theirs_) {
    EXPECT_TRUE(here_.dataset().IsRemote(ExtentId(extent)));
  }
  here_.gfs_faults.Disarm();
  here_.gfs_faults.ReleaseStalls();
  for (std::promise<void>& told : loaded) told.get_future().wait();
  AwaitTakenOver();
  EXPECT_EQ(Resident(), theirs_.size());
}

// A third node owns a part of the data set, too.
class HandOverOfThreeTest : public HandOverTest {
 protected:
  // `happens` to the third node, as both others see it.
  void StartThree(const std::function<void(plan::Membership&)>& happens) {
    DatasetOptions dataset = RecordDataset();
    dataset.group_bytes = 1;
    FOREBAY_EXPECT_OK(other_.Start(dataset, {.nodes = &three_seen_by_other_, .peers = &nobody_}));
    FOREBAY_EXPECT_OK(other_.StageAll());
    FOREBAY_EXPECT_OK(here_.Start(dataset, {.nodes = &three_, .peers = &source_}));
    FOREBAY_EXPECT_OK(here_.StageAll());
    here_.CountGfsReads();
    other_.CountGfsReads();
    for (plan::Membership* nodes : {&three_, &three_seen_by_other_}) happens(*nodes);
    three_.SetLeaves(kLeaves, true);
    hand_over_.emplace(here_.stager(),
                       [this] { return std::vector<Dataset*>{&here_.dataset()}; });
  }
  void TakeOverAll() {
    hand_over_->Begin();
    AwaitTakenOver();
  }
  void TearDown() override {
    here_.Stop();  // it uses what ends before it
    other_.Stop();
  }
  bool IsHere(ExtentId extent) {
    return static_cast<bool>(here_.cache().Find(here_.dataset().key(extent)));
  }
  // Extents of groups with these nodes first, in this order.
  std::vector<ExtentId> RankedAs(const std::vector<NodeRank>& first) {
    std::vector<ExtentId> extents;
    for (std::uint32_t i = 0; i < here_.extent_count(); ++i) {
      const auto ranked = three_.Ranked(here_.dataset().group_key(ExtentId(i)));
      if (std::equal(first.begin(), first.end(), ranked.begin())) extents.emplace_back(i);
    }
    EXPECT_FALSE(extents.empty());
    return extents;
  }

  static constexpr NodeRank kThird{2};
  const std::vector<plan::Node> list_ = {{kHere, 1, 1}, {kLeaves, 1, 2}, {kThird, 1, 3}};
  plan::Membership three_{kHere, list_};
  plan::Membership three_seen_by_other_{kLeaves, list_};
};

TEST_F(HandOverOfThreeTest, ANodeThatRestsKeepsItsGroupsAndItsPlace) {
  StartThree([](plan::Membership& nodes) { nodes.Rest(kThird, plan::Membership::kForEver - 1); });
  const ExtentId evicted = RankedAs({kHere}).front();
  FOREBAY_EXPECT_OK(here_.cache().Evict(here_.dataset().key(evicted), std::nullopt));
  TakeOverAll();
  for (const ExtentId extent : RankedAs({kLeaves, kHere})) EXPECT_TRUE(IsHere(extent));
  for (const ExtentId extent : RankedAs({kLeaves, kThird})) EXPECT_FALSE(IsHere(extent));
  for (const ExtentId extent : RankedAs({kThird})) EXPECT_FALSE(IsHere(extent));
  EXPECT_FALSE(IsHere(evicted)) << "it is read again when a reader needs it";
  EXPECT_EQ(here_.gfs_reads() + other_.gfs_reads(), 0U);
  EXPECT_EQ(source_.asked, RankedAs({kLeaves, kHere}).size());
}

TEST_F(HandOverOfThreeTest, WhatHasFailedIsTriedAgainSoThatAFailureIsNotForgotten) {
  StartThree([](plan::Membership&) {});
  const ExtentId failed = RankedAs({kHere}).front();
  FOREBAY_EXPECT_OK(here_.cache().Evict(here_.dataset().key(failed), std::nullopt));
  here_.gfs_faults.Arm(
      {.kind = io::FaultKind::kEio, .call = io::IoCall::kRead, .is_persistent = true});
  EXPECT_FALSE(here_.Demand(failed).has_value());
  hand_over_->Begin();
  AwaitTakenOver();
  EXPECT_EQ(here_.dataset().progress().state, DatasetState::kFailed);
  here_.gfs_faults.Disarm();
  TakeOverAll();
  EXPECT_TRUE(IsHere(failed));
}

// The node that leaves may have read them in its place.
TEST_F(HandOverOfThreeTest, GroupsOfADeadNodeAreTakenOverWhereTheNodeThatLeavesHasItsPlace) {
  StartThree([](plan::Membership& nodes) { nodes.SetLives(kThird, false); });
  TakeOverAll();
  for (const ExtentId extent : RankedAs({kLeaves})) EXPECT_TRUE(IsHere(extent));
  for (const ExtentId extent : RankedAs({kThird, kLeaves})) EXPECT_TRUE(IsHere(extent));
  for (const ExtentId extent : RankedAs({kThird, kHere})) EXPECT_FALSE(IsHere(extent));
  EXPECT_EQ(here_.gfs_reads(), 0U);
  EXPECT_GT(other_.gfs_reads(), 0U) << "nobody had these yet";
}

}  // namespace forebay::stage::hand_over_test
