// An extent that another node supplies is checked before it is used. Also: the extents that this
// node supplies to others, and the errors that mean that a node does not answer. Both ends are in
// peer/extent_exchange_test.cc.
#include "server/stage/extent_source.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/local_extents.h"
#include "server/stage/packed/packed_form.h"
#include "server/stage/testing/stage_rig.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::stage::extent_source_test {

using io::testing::Pattern;
using io::testing::Take;
using ::testing::HasSubstr;

constexpr std::uint64_t kFileBytes = 512'000;  // in 8 extents
constexpr ExtentId kExtent{3};

class ExtentSourceTest : public ::testing::Test {
 protected:
  ExtentSourceTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes, 1)).has_value());
  }

  void Start(const RigOptions& options = {}, Compression compression = Compression::kOff) {
    DatasetOptions dataset = RecordDataset();
    dataset.compression = compression;
    FOREBAY_EXPECT_OK(rig_.Start(dataset, options));
    FOREBAY_EXPECT_OK(rig_.StageAll());
  }
  // Asks this node for an extent, as another node does.
  Result<SuppliedExtent> Supply(ExtentId extent, std::uint64_t fingerprint) {
    LocalExtents local(rig_.cache(), rig_.stager(), clock_);
    const auto queue = Take(rig_.backend().CreateQueue({.depth = 2}));
    return local.Read(rig_.dataset(), fingerprint, extent,
                      [&](std::uint64_t bytes) { return rig_.arena().Allocate(bytes); }, *queue);
  }
  Result<SuppliedExtent> Supply(ExtentId extent) {
    return Supply(extent, rig_.dataset().catalog()->fingerprint());
  }
  Result<tier::ExtentChecksums> Verify(ExtentId extent, const SuppliedExtent& supplied) {
    return VerifySupplied(rig_.dataset(), *rig_.dataset().catalog(), extent, supplied, &is_intact_);
  }
  // `is_intact`: the other node is not to blame.
  void ExpectRefused(ExtentId extent, const SuppliedExtent& supplied, bool is_intact = false) {
    const auto refused = Verify(extent, supplied);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(is_intact_, is_intact);
    EXPECT_EQ(refused.error().code(), ErrorCode::kDataLoss);
    EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(extent.value())));
  }

  io::MemoryBackend memory_;
  io::SteadyClock clock_;
  StageRig rig_{memory_, ""};
  bool is_intact_ = false;
};

TEST_F(ExtentSourceTest, WhatIsSuppliedFromRamHasTheChecksumsOfTheFirstRead) {
  Start();
  const SuppliedExtent supplied = Take(Supply(kExtent));
  EXPECT_FALSE(supplied.is_packed);
  const auto verified = Verify(kExtent, supplied);
  ASSERT_TRUE(verified.has_value()) << verified.error().ToString();
  const tier::ExtentRef here = rig_.cache().Find(rig_.dataset().key(kExtent));
  EXPECT_EQ(verified->image, here->checksums.image);
  EXPECT_EQ(verified->pieces, here->checksums.pieces);
}

// The tiers may have bytes of after a rebuild under its keys.
TEST_F(ExtentSourceTest, AnOutdatedDataSetSuppliesNothing) {
  Start();
  rig_.dataset().version().MarkOutdated();
  const auto refused = Supply(kExtent);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("open the stream again"));
}

TEST_F(ExtentSourceTest, AFlippedBitAnotherLengthAndAnotherExtentAreRefused) {
  Start();
  SuppliedExtent supplied = Take(Supply(kExtent));
  ExpectRefused(ExtentId(4), supplied);
  supplied.image.bytes()[64'999] ^= std::byte{4};
  ExpectRefused(kExtent, supplied);
  SuppliedExtent last = Take(Supply(ExtentId(7)));  // it is shorter
  last.checksums = supplied.checksums;
  ExpectRefused(kExtent, last);
}

TEST_F(ExtentSourceTest, BytesThatAreNotThoseOfTheFirstReadAreRefused) {
  Start();
  SuppliedExtent supplied = Take(Supply(kExtent));
  // The sender has read other bytes than this node, and their checksum matches.
  supplied.image.bytes()[0] ^= std::byte{1};
  supplied.checksums =
      tier::ComputeChecksums(rig_.dataset().key(kExtent), supplied.image.bytes(), {});
  ExpectRefused(kExtent, supplied, /*is_intact=*/true);
  EXPECT_EQ(rig_.dataset().first_reads().mismatches(), 1U);
}

TEST_F(ExtentSourceTest, ACompressedExtentIsVerifiedWithItsPieces) {
  Start({}, Compression::kFast);
  SuppliedExtent supplied = Take(Supply(kExtent));
  EXPECT_TRUE(supplied.is_packed);
  const auto verified = Verify(kExtent, supplied);
  ASSERT_TRUE(verified.has_value()) << verified.error().ToString();
  EXPECT_EQ(verified->pieces.size(), rig_.dataset().form()->PieceCount(kExtent));
  EXPECT_EQ(verified->pieces,
            rig_.cache().Find(rig_.dataset().key(kExtent))->checksums.pieces);
  ExpectRefused(ExtentId(4), supplied);
  const std::size_t last = supplied.image.bytes().size() - 1;
  for (const std::size_t offset : {std::size_t{0}, std::size_t{30}, last}) {
    supplied.image.bytes()[offset] ^= std::byte{1};
    ExpectRefused(kExtent, supplied);
    supplied.image.bytes()[offset] ^= std::byte{1};
  }
}

TEST_F(ExtentSourceTest, ACompressedExtentOfOtherBytesThanThoseOfTheFirstReadIsRefused) {
  Start({}, Compression::kFast);
  const SuppliedExtent supplied = Take(Supply(kExtent));
  const tier::ExtentKey raw = tier::KeyOf(*rig_.dataset().catalog(), kExtent);
  FirstReads& reads = rig_.dataset().first_reads();
  const std::uint64_t right = reads.Find(raw).value();
  // The sender has read other bytes than this node, and what it sends is intact.
  reads.Forget();
  EXPECT_EQ(reads.Compare(raw, right + 1), FirstReads::Outcome::kFirst);
  ExpectRefused(kExtent, supplied, /*is_intact=*/true);
  EXPECT_EQ(reads.mismatches(), 1U);
  // If this node has not read the extent, what another one has read is the first read here.
  reads.Forget();
  EXPECT_TRUE(Verify(kExtent, supplied).has_value());
  EXPECT_EQ(reads.Find(raw), right);
}

TEST_F(ExtentSourceTest, AnEvictedExtentIsStagedForTheNodeThatAsks) {
  Start();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(kExtent), std::nullopt));
  EXPECT_TRUE(Verify(kExtent, Take(Supply(kExtent))).has_value());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes + 65'000);
}

TEST_F(ExtentSourceTest, ADamagedCopyOnSsdIsNotSuppliedButStagedAgain) {
  Start({.ram_bytes = 512 << 10, .reserve_bytes = 480 << 10, .ssd_bytes = 8 << 20});
  const tier::ExtentRef here = rig_.cache().Find(rig_.dataset().key(kExtent));
  ASSERT_EQ(here->tier, tier::TierKind::kSsd);
  EXPECT_TRUE(Verify(kExtent, Take(Supply(kExtent))).has_value());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  ASSERT_TRUE(memory_.FlipBit("/ssd/" + tier::SegmentName(here->key), 12'345).has_value());
  EXPECT_TRUE(Verify(kExtent, Take(Supply(kExtent))).has_value());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes + 65'000);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kSsd).bad_extents, 1U);
}

TEST_F(ExtentSourceTest, ANodeWithAnotherCatalogOrANumberBeyondItIsRefused) {
  Start();
  const auto other = Supply(kExtent, 1);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code(), ErrorCode::kFailedPrecondition);
  const auto beyond = Supply(ExtentId(8));
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(ExtentSourceTest, ADataSetThatCannotBeCataloguedIsAnErrorOfThisNode) {
  // One record and a half.
  FOREBAY_EXPECT_OK(memory_.AddFile("/gfs/data.bin", Pattern(1500)));
  FOREBAY_EXPECT_OK(rig_.Start(RecordDataset()));
  const auto failed = Supply(kExtent, 1);
  ASSERT_FALSE(failed.has_value());
  EXPECT_FALSE(IsNoAnswer(failed.error())) << failed.error().ToString();
}

// Another node, which does not answer before it has got an extent of this one.
class WaitingNode final : public ExtentSource {
 public:
  Result<SuppliedExtent> Read(const ExtentRequest&, const AllocateImage&, io::IoQueue&) override {
    asked.set_value();
    answered.get_future().get();
    return Error(ErrorCode::kUnavailable, "no answer");
  }
  std::promise<void> asked;
  std::promise<void> answered;
};

// There is working memory for one extent. The load that waits for the other node must not keep it:
// the load that the other node waits for would never get it.
TEST_F(ExtentSourceTest, ALoadThatWaitsForAnotherNodeKeepsNoWorkingMemory) {
  WaitingNode other;
  plan::Membership nodes{NodeRank(0), {{NodeRank(0), 1}, {NodeRank(1), 1}}};
  DatasetOptions dataset = RecordDataset();
  dataset.compression = Compression::kFast;
  dataset.group_bytes = 1;  // so that the nodes share the data set, extent by extent
  FOREBAY_EXPECT_OK(
      rig_.Start(dataset, {.reserve_bytes = 64 << 10, .nodes = &nodes, .peers = &other}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const auto first = [&](bool is_ours) {
    std::uint32_t extent = 0;
    while (nodes.Reads(rig_.dataset().group_key(ExtentId(extent))) != is_ours) ++extent;
    return ExtentId(extent);
  };
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(first(true)), std::nullopt));
  std::promise<Status> theirs;
  rig_.stager().Demand(rig_.dataset(), first(false),
                       [&](const Status& status) { theirs.set_value(status); });
  other.asked.get_future().get();
  std::promise<Status> ours;
  auto supplied = ours.get_future();
  rig_.stager().Demand(rig_.dataset(), first(true),
                       [&](const Status& status) { ours.set_value(status); });
  EXPECT_EQ(supplied.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  other.answered.set_value();
  FOREBAY_EXPECT_OK(supplied.get());
  // This node reads in the place of the other one.
  FOREBAY_EXPECT_OK(theirs.get_future().get());
}

// All memory is in use, as where the data do not fit on the tiers. The substitute of a lost node
// reads samples one by one then.
class CrowdedSourceTest : public ExtentSourceTest {
 protected:
  // Another node, which yields, and has nothing.
  class YieldingNode final : public ExtentSource {
   public:
    Result<SuppliedExtent> Read(const ExtentRequest&, const AllocateImage&, io::IoQueue&) override {
      ++asked;
      return AskNext();
    }
    std::atomic<int> asked = 0;
  };
};

// So does the substitute of a node that is alive and yields.
TEST_F(CrowdedSourceTest, WhatAnotherNodeRefusesIsReadInPieces) {
  YieldingNode other;
  plan::Membership nodes{NodeRank(0), {{NodeRank(0), 1}, {NodeRank(1), 1}}};
  DatasetOptions options = RecordDataset();
  options.group_bytes = 1;  // so that the nodes share the data set, extent by extent
  FOREBAY_EXPECT_OK(rig_.Start(options, {.nodes = &nodes, .peers = &other}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  Dataset& dataset = rig_.dataset();
  std::uint32_t theirs = 0;
  while (nodes.Reads(dataset.group_key(ExtentId(theirs)))) ++theirs;
  ASSERT_FALSE(rig_.cache().Holds(dataset.key(ExtentId(theirs))));
  std::vector<tier::ExtentRef> in_use;
  for (const tier::ExtentKey& key : rig_.cache().Resident(tier::TierKind::kRam)) {
    in_use.push_back(rig_.cache().Find(key));
  }
  std::vector<tier::ArenaBlock> taken;
  while (rig_.arena().largest_free_bytes() > 0) {
    taken.push_back(Take(rig_.arena().Allocate(rig_.arena().largest_free_bytes())));
  }
  std::promise<Status> outcome;
  rig_.stager().Demand(
      dataset, ExtentId(theirs), [&](const Status& status) { outcome.set_value(status); },
      Access::kPieces);
  FOREBAY_EXPECT_OK(outcome.get_future().get());
  EXPECT_EQ(other.asked, 1) << "it may have the extent";
  EXPECT_NE(rig_.stager().pieces().Find(dataset.key(ExtentId(theirs))), nullptr);
  in_use.clear();
  taken.clear();
  rig_.Stop();  // which uses the nodes
}

// The other node of a job, which has staged the data set.
class StagedNode final : public ExtentSource {
 public:
  StagedNode(StageRig& rig, io::Clock& clock)
      : dataset_(rig.dataset()), local_(rig.cache(), rig.stager(), clock) {}
  Result<SuppliedExtent> Read(const ExtentRequest& request, const AllocateImage& allocate,
                              io::IoQueue& queue) override {
    return local_.Read(dataset_, request.catalog.fingerprint(), request.extent, allocate, queue);
  }

 private:
  Dataset& dataset_;
  LocalExtents local_;
};

// An extent that is loaded before there is a catalog always comes from the GFS, also on a node that
// has joined. Whether one is loaded so early is a race, so the test repeats.
TEST_F(ExtentSourceTest, ANodeThatHasJoinedGetsAFolderFromTheOthersAlone) {
  DatasetOptions folder;
  folder.source.name = "folder";
  folder.source.format = catalog::Format::kImageFolder;
  folder.source.settings.SetTexts("suffixes", {".jpg"});
  folder.source.extent_bytes = 64 << 10;
  folder.group_bytes = 1;  // so that the nodes share the data set, extent by extent
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::string path = "/gfs/class" + std::to_string(i % 3) + "/" + std::to_string(i);
    FOREBAY_EXPECT_OK(memory_.AddFile(path + ".jpg", Pattern(2000, i)));
  }
  StageRig other(memory_, "");
  FOREBAY_EXPECT_OK(other.Start(folder));
  FOREBAY_EXPECT_OK(other.StageAll());
  StagedNode peer(other, clock_);
  plan::Membership nodes{NodeRank(0), {{NodeRank(0), 1}, {NodeRank(1), 1}}};
  nodes.SetYields(plan::YieldReason::kArrives, true);
  for (int i = 0; i < 50; ++i) {
    StageRig joined(memory_, "");
    FOREBAY_EXPECT_OK(joined.Start(folder, {.readers = 3, .nodes = &nodes, .peers = &peer}));
    FOREBAY_EXPECT_OK(joined.StageAll());
    ASSERT_GT(joined.dataset().progress().staged_bytes, 0U);
    ASSERT_EQ(joined.dataset().progress().gfs_bytes, 0U) << "attempt " << i;
  }
}

TEST(ExtentSourceErrors, AnOwnErrorIsNotTakenForSilence) {
  for (const ErrorCode code : {ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded}) {
    EXPECT_TRUE(IsNoAnswer(Error(code, "x")));
    const Error sent = ErrorForOthers(Error(code, "x"));
    EXPECT_EQ(sent.code(), ErrorCode::kAborted);
    EXPECT_EQ(ErrorFromOthers(sent).code(), ErrorCode::kUnavailable);
  }
  // A third node that was too busy for this one says nothing about this one.
  EXPECT_FALSE(IsNoAnswer(TooBusy("x")));
  EXPECT_EQ(ErrorForOthers(TooBusy("x")).code(), ErrorCode::kAborted);
  EXPECT_EQ(ErrorFromOthers(TooBusy("x")).code(), ErrorCode::kUnavailable);
  EXPECT_FALSE(IsTooBusy(Error(ErrorCode::kResourceExhausted, "the tiers are too small")));
  // Nor does a request that has not left this node.
  EXPECT_TRUE(IsNotSent(NotSent("x")));
  EXPECT_TRUE(IsTooBusy(NotSent("x")));
  EXPECT_FALSE(IsNoAnswer(NotSent("x")));
  EXPECT_FALSE(IsNotSent(TooBusy("x")));
  EXPECT_FALSE(IsNotSent(Error(ErrorCode::kResourceExhausted, "the tiers are too small")));
  EXPECT_EQ(ErrorForOthers(NotSent("x")).code(), ErrorCode::kAborted);
  EXPECT_EQ(ErrorFromOthers(NotSent("x")).code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(IsNoAnswer(ErrorForOthers(Error(ErrorCode::kCancelled, "shutting down"))));
  const Error lost = ErrorForOthers(Error(ErrorCode::kDataLoss, "x"));
  EXPECT_EQ(lost.code(), ErrorCode::kDataLoss);
  EXPECT_EQ(ErrorFromOthers(lost).code(), ErrorCode::kDataLoss);
}

}  // namespace forebay::stage::extent_source_test
