// Several nodes in one process stage one data set: each reads its share, so the GFS is read once in
// total, and each copies the extents of the others from them. A node that does not answer is
// replaced by the first of its substitutes that is alive. Each test runs over both transports.
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/peer/testing/exchange_node.h"
#include "server/peer/testing/node_transport.h"
#include "server/stage/extent_groups.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::peer {
namespace {

using io::testing::Pattern;
using stage::RigOptions;
using stage::StageRig;
using ::testing::HasSubstr;

constexpr std::uint64_t kFileBytes = 1'024'000;  // in 16 extents
constexpr std::uint32_t kExtents = 16;
constexpr std::uint64_t kExtentBytes = 65'000;  // of each but the last: 65 records

class ExtentExchangeTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  ExtentExchangeTest() {
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes, 1)).has_value());
  }

  // Before the nodes go: they may be waiting for each other, and a server refers to its node.
  ~ExtentExchangeTest() override { transport_->Stop(); }

  // Starts nodes 0 to count - 1, which have not staged anything yet.
  void Start(std::uint32_t count, RigOptions options = {},
             const stage::DatasetOptions& dataset = stage::RecordDataset()) {
    std::vector<plan::Node> all;
    for (std::uint32_t rank = 0; rank < count; ++rank) all.push_back({NodeRank(rank), 1});
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      nodes_.push_back(std::make_unique<ExchangeNode>(memory_, NodeRank(rank), all));
      options.ssd_folder = "/ssd" + std::to_string(rank);
      EXPECT_TRUE(memory_.AddDirectory(options.ssd_folder).has_value());
      FOREBAY_EXPECT_OK(nodes_.back()->Start(*transport_, options, dataset));
    }
  }
  // The next daemon of a node, with the same SSD. The other nodes do not reach it.
  void StartAgain(std::uint32_t rank, RigOptions options, const stage::DatasetOptions& dataset) {
    transport_->Silence(NodeRank(rank));
    rig(rank).Stop();
    options.ssd_folder = "/ssd" + std::to_string(rank);
    FOREBAY_EXPECT_OK(nodes_[rank]->Start(*transport_, options, dataset, /*has_answers=*/false));
  }
  StageRig& rig(std::uint32_t rank) { return nodes_[rank]->rig; }
  plan::Membership& membership(std::uint32_t rank) { return nodes_[rank]->nodes; }
  // The owner of the extent, then its substitutes.
  std::vector<NodeRank> Ranked(ExtentId extent) {
    const stage::Dataset& dataset = rig(0).dataset();
    if (dataset.catalog()) return membership(0).Ranked(dataset.group_key(extent));
    // Some tests ask before there is a catalog. This key may yet change, if its owner has no room.
    return membership(0).Ranked(stage::GroupKeyOf(
        rig(0).dataset().hash(), ObjectId(0), extent.value() * kExtentBytes));
  }
  // An extent whose ranking begins with these nodes.
  ExtentId ExtentRanked(const std::vector<NodeRank>& ranked) {
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      if (Ranked(ExtentId(i)) == ranked) return ExtentId(i);
    }
    ADD_FAILURE() << "no extent has these owners";
    return ExtentId(0);
  }
  std::uint64_t GfsBytes() {
    std::uint64_t bytes = 0;
    for (const auto& node : nodes_) bytes += node->rig.dataset().progress().gfs_bytes;
    return bytes;
  }
  // A byte of each, behind the size and modification time of the object.
  void AlterEveryExtent() {
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", (i * kExtentBytes + 77) * 8));
    }
  }
  void StageAll() {
    for (const auto& node : nodes_) FOREBAY_EXPECT_OK(node->rig.StageAll());
  }

  io::MemoryBackend memory_;
  const std::unique_ptr<NodeTransport> transport_ = MakeTransport(GetParam());
  std::vector<std::unique_ptr<ExchangeNode>> nodes_;
};

TEST_P(ExtentExchangeTest, EachNodeStagesItsShareAndTheSetIsReadOnce) {
  Start(2);
  StageAll();
  EXPECT_EQ(GfsBytes(), kFileBytes);
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const bool owns = Ranked(ExtentId(i)).front() == NodeRank(rank);
      const bool has = rig(rank).cache().Find(rig(rank).dataset().key(ExtentId(i))) != nullptr;
      EXPECT_EQ(has, owns) << "extent " << i << " on node " << rank;
    }
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const stage::DatasetProgress progress = rig(rank).dataset().progress();
    EXPECT_EQ(progress.state, stage::DatasetState::kStaged);
    EXPECT_GT(progress.gfs_bytes, 0U);
    EXPECT_EQ(rig(rank).dataset().bytes_without_home(), 0U) << "extents of others need no home";
    EXPECT_EQ(transport_->extents_asked(NodeRank(rank)), 0U);
  }
}

TEST_P(ExtentExchangeTest, AnExtentOfAnotherNodeIsCopiedFromItAndKeptAsAGuest) {
  Start(2);
  StageAll();
  const ExtentId extent = ExtentRanked({NodeRank(1), NodeRank(0)});
  FOREBAY_EXPECT_OK(rig(0).Demand(extent));
  FOREBAY_EXPECT_OK(rig(0).Verify(extent));
  EXPECT_EQ(rig(0).dataset().home(extent), plan::HomeTier::kNone);
  EXPECT_EQ(transport_->extents_asked(NodeRank(1)), 1U);
  EXPECT_EQ(GfsBytes(), kFileBytes);
}

TEST_P(ExtentExchangeTest, AnExtentIsCopiedFromItsOwnersSsd) {
  // Each node's RAM has no space for homes, so its share lies on SSD.
  Start(2, {.ram_bytes = 512 << 10, .reserve_bytes = 480 << 10, .ssd_bytes = 8 << 20});
  StageAll();
  const ExtentId extent = ExtentRanked({NodeRank(1), NodeRank(0)});
  const tier::ExtentRef owners = rig(1).cache().Find(rig(1).dataset().key(extent));
  ASSERT_TRUE(owners != nullptr && owners->tier == tier::TierKind::kSsd);
  FOREBAY_EXPECT_OK(rig(0).Demand(extent));
  FOREBAY_EXPECT_OK(rig(0).Verify(extent));
  EXPECT_EQ(GfsBytes(), kFileBytes);
}

TEST_P(ExtentExchangeTest, AnOwnerThatHasNotBegunStagesForTheNodeThatAsks) {
  Start(2);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  for (std::uint32_t i = 0; i < kExtents; ++i) FOREBAY_EXPECT_OK(rig(0).Demand(ExtentId(i)));
  FOREBAY_EXPECT_OK(rig(0).VerifyAll());
  FOREBAY_EXPECT_OK(stage::AwaitPassEnd(rig(1).dataset()));
  EXPECT_EQ(GfsBytes(), kFileBytes);
}

TEST_P(ExtentExchangeTest, OnlyTheFirstSubstituteThatLivesReadsAndOnceForAll) {
  Start(4);
  for (std::uint32_t rank = 1; rank < 4; ++rank) FOREBAY_EXPECT_OK(rig(rank).StageAll());
  const std::uint64_t staged = GfsBytes();
  transport_->Silence(NodeRank(0));
  // The share of node 0 has not been read, and the three other nodes want it at the same time.
  {
    std::vector<std::jthread> readers;
    for (std::uint32_t rank = 1; rank < 4; ++rank) {
      readers.emplace_back([this, rank] {
        for (std::uint32_t i = 0; i < kExtents; ++i) {
          FOREBAY_EXPECT_OK(rig(rank).Demand(ExtentId(i)));
        }
      });
    }
  }
  EXPECT_EQ(rig(0).dataset().progress().gfs_bytes, 0U);
  EXPECT_EQ(GfsBytes(), kFileBytes);
  EXPECT_LT(staged, kFileBytes);
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    const std::vector<NodeRank> ranked = Ranked(ExtentId(i));
    if (ranked[0] != NodeRank(0)) continue;
    for (std::uint32_t rank = 1; rank < 4; ++rank) {
      // The node that has read the extent keeps it, and has space reserved for it from now on.
      EXPECT_EQ(rig(rank).dataset().home(ExtentId(i)) == plan::HomeTier::kRam,
                ranked[1] == NodeRank(rank))
          << "extent " << i << " on node " << rank;
    }
  }
  for (std::uint32_t rank = 1; rank < 4; ++rank) {
    FOREBAY_EXPECT_OK(rig(rank).VerifyAll());
    EXPECT_FALSE(membership(rank).Lives(NodeRank(0)));
  }
}

TEST_P(ExtentExchangeTest, TheLastNodeReadsEverything) {
  Start(3);
  transport_->Silence(NodeRank(1));
  transport_->Silence(NodeRank(2));
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  for (std::uint32_t i = 0; i < kExtents; ++i) FOREBAY_EXPECT_OK(rig(0).Demand(ExtentId(i)));
  FOREBAY_EXPECT_OK(rig(0).VerifyAll());
  EXPECT_EQ(GfsBytes(), kFileBytes);
}

TEST_P(ExtentExchangeTest, StagingAgainTakesTheShareOfANodeThatIsGone) {
  Start(2);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  const std::uint64_t share = GfsBytes();
  membership(0).SetLives(NodeRank(1), false);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  EXPECT_EQ(GfsBytes(), kFileBytes);
  EXPECT_LT(share, kFileBytes);
  FOREBAY_EXPECT_OK(rig(0).VerifyAll());
  // The node is back. Extents that have a home on this node stay.
  membership(0).SetLives(NodeRank(1), true);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  FOREBAY_EXPECT_OK(rig(0).VerifyAll());
  EXPECT_EQ(GfsBytes(), kFileBytes);
}

TEST_P(ExtentExchangeTest, WrongBytesOfANodeAreRefusedAndTheNextIsAsked) {
  Start(3);
  StageAll();
  const ExtentId extent = ExtentRanked({NodeRank(1), NodeRank(2), NodeRank(0)});
  transport_->SetFlipsBits(NodeRank(1));
  const std::uint64_t asked = transport_->extents_asked(NodeRank(2));
  FOREBAY_EXPECT_OK(rig(0).Demand(extent));
  FOREBAY_EXPECT_OK(rig(0).Verify(extent));
  EXPECT_EQ(transport_->extents_asked(NodeRank(2)), asked + 1);
  EXPECT_TRUE(membership(0).Lives(NodeRank(1))) << "it does answer";
  // By this node, and by node 2, which asks the owner before it reads in its place.
  EXPECT_EQ(transport_->wrong_extents(NodeRank(1)), 2U);
  EXPECT_EQ(transport_->wrong_extents(NodeRank(2)), 0U);
}

TEST_P(ExtentExchangeTest, ABusyNodeIsPassedOverAndStaysAlive) {
  Start(3);
  StageAll();
  const ExtentId extent = ExtentRanked({NodeRank(1), NodeRank(2), NodeRank(0)});
  transport_->SetIsTooBusy(NodeRank(1));
  const std::uint64_t asked = transport_->extents_asked(NodeRank(2));
  FOREBAY_EXPECT_OK(rig(0).Demand(extent));
  FOREBAY_EXPECT_OK(rig(0).Verify(extent));
  EXPECT_EQ(transport_->extents_asked(NodeRank(2)), asked + 1);
  EXPECT_TRUE(membership(0).Lives(NodeRank(1)));
}

TEST_P(ExtentExchangeTest, ANodeReadsInPlaceOfABusyOneIfThereIsNoOther) {
  Start(2);
  StageAll();
  transport_->SetIsTooBusy(NodeRank(1));
  const ExtentId extent = ExtentRanked({NodeRank(1), NodeRank(0)});
  FOREBAY_EXPECT_OK(rig(0).Demand(extent));
  FOREBAY_EXPECT_OK(rig(0).Verify(extent));
  EXPECT_EQ(transport_->extents_asked(NodeRank(1)), 1U) << "it was asked first";
  EXPECT_GT(GfsBytes(), kFileBytes);
  EXPECT_TRUE(membership(0).Lives(NodeRank(1)));
}

TEST_P(ExtentExchangeTest, ASubstituteReadsInPlaceOfANodeThatYieldsAndOnceForAll) {
  Start(3);
  membership(0).SetYields(plan::YieldReason::kSlowGfs, true);
  StageAll();
  EXPECT_EQ(rig(0).dataset().progress().gfs_bytes, 0U) << "its share came from the next nodes";
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    for (std::uint32_t i = 0; i < kExtents; ++i) FOREBAY_EXPECT_OK(rig(rank).Demand(ExtentId(i)));
    FOREBAY_EXPECT_OK(rig(rank).VerifyAll());
  }
  EXPECT_EQ(GfsBytes(), kFileBytes);
  EXPECT_EQ(rig(0).dataset().progress().gfs_bytes, 0U);
  for (std::uint32_t rank = 1; rank < 3; ++rank) EXPECT_TRUE(membership(rank).Lives(NodeRank(0)));
}

TEST_P(ExtentExchangeTest, WhereAllNodesYieldTheyReadAllTheSame) {
  Start(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    membership(rank).SetYields(plan::YieldReason::kSlowGfs, true);
  }
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  for (std::uint32_t i = 0; i < kExtents; ++i) FOREBAY_EXPECT_OK(rig(0).Demand(ExtentId(i)));
  FOREBAY_EXPECT_OK(rig(0).VerifyAll());
  EXPECT_GT(rig(0).dataset().progress().gfs_bytes, 0U);
  EXPECT_GE(GfsBytes(), kFileBytes);
  EXPECT_LE(GfsBytes(), 2 * kFileBytes) << "none reads an extent twice";
}

// Node 0 waits for node 1, which asks the owner first, node 0.
TEST_P(ExtentExchangeTest, ANodeThatHasYieldedIsNotWaitedForByTheNodeThatItWaitsFor) {
  Start(2);
  FOREBAY_EXPECT_OK(rig(1).StageAll());
  const std::uint64_t staged = GfsBytes();
  membership(0).SetYields(plan::YieldReason::kSlowGfs, true);
  transport_->SetBeforeExtents(NodeRank(0), [this] {
    membership(0).SetYields(plan::YieldReason::kSlowGfs, false);
  });
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  EXPECT_FALSE(membership(0).Yields());
  EXPECT_GT(rig(1).dataset().progress().gfs_bytes, staged);
  EXPECT_EQ(GfsBytes(), kFileBytes);
}

TEST_P(ExtentExchangeTest, AnErrorOfTheOwnerIsTheErrorHereAndNotTakenForSilence) {
  Start(2);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  rig(1).gfs_faults.Arm({.call = io::IoCall::kRead, .is_persistent = true});
  const Status failed = rig(0).Demand(ExtentRanked({NodeRank(1), NodeRank(0)}));
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("injected fault"));
  EXPECT_TRUE(membership(0).Lives(NodeRank(1)));
  EXPECT_LT(GfsBytes(), kFileBytes) << "this node does not read in its place";
}

TEST_P(ExtentExchangeTest, TheNextTwoNodesKnowTheFirstReadsOfAnOwner) {
  Start(4);
  StageAll();
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    const tier::ExtentKey key = rig(0).dataset().key(ExtentId(i));
    const std::vector<NodeRank> ranked = Ranked(ExtentId(i));
    const auto first = rig(ranked[0].value()).dataset().first_reads().Find(key);
    ASSERT_TRUE(first.has_value());
    for (const std::size_t place : {1U, 2U}) {
      const stage::FirstReads& known = rig(ranked[place].value()).dataset().first_reads();
      EXPECT_EQ(known.Find(key), first) << "extent " << i << " on its substitute " << place;
      EXPECT_TRUE(known.IsOfOther(key));
    }
    EXPECT_FALSE(rig(ranked[3].value()).dataset().first_reads().Find(key).has_value());
  }
}

// The owner is gone, and its object altered behind its size and modification time: its substitutes
// have never read the extent themselves.
TEST_P(ExtentExchangeTest, ASubstituteRefusesBytesThatAreNotThoseOfTheOwnersFirstRead) {
  Start(3);
  StageAll();
  transport_->Silence(NodeRank(1));
  AlterEveryExtent();
  std::uint32_t refused = 0;
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    const std::vector<NodeRank> ranked = Ranked(ExtentId(i));
    if (ranked[0] != NodeRank(1)) continue;
    const Status read = rig(ranked[1].value()).Demand(ExtentId(i));
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code(), ErrorCode::kDataLoss);
    EXPECT_THAT(read.error().message(),
                AllOf(HasSubstr("object 'data.bin', extent " + std::to_string(i) + ": changed"),
                      HasSubstr("another node of the job has read it first")));
    ++refused;
  }
  EXPECT_GT(refused, 0U);
}

// A node that wrongly takes the owner for dead reads other bytes than the owner did. It has no
// checksum of the owner's, but the node after it has.
TEST_P(ExtentExchangeTest, TwoReadersOfAnExtentFindThatTheyReadOtherBytes) {
  Start(3);
  FOREBAY_EXPECT_OK(rig(1).StageAll());
  // The record of the owner has not reached this node.
  rig(0).dataset().first_reads().Forget();
  AlterEveryExtent();
  membership(0).SetLives(NodeRank(1), false);
  static_cast<void>(rig(0).StageAll());  // fails, for this extent among others
  const ExtentId extent = ExtentRanked({NodeRank(1), NodeRank(0), NodeRank(2)});
  const Status demanded = rig(0).Demand(extent);
  ASSERT_FALSE(demanded.has_value());
  EXPECT_EQ(demanded.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(demanded.error().message(),
              HasSubstr("node 2 has another checksum of the first read of data set 'data' than "
                        "node 0 has read"));
  EXPECT_TRUE(membership(0).Lives(NodeRank(2)));
}

TEST_P(ExtentExchangeTest, StagingGoesOnWithoutSubstitutes) {
  Start(3);
  transport_->Silence(NodeRank(1));
  transport_->Silence(NodeRank(2));
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  const stage::DatasetProgress progress = rig(0).dataset().progress();
  EXPECT_EQ(progress.staged_bytes, progress.gfs_bytes);
  EXPECT_GT(progress.staged_bytes, 0U);
  for (const std::uint32_t rank : {1U, 2U}) EXPECT_FALSE(membership(0).Lives(NodeRank(rank)));
}

// Copies of an earlier daemon are not read from the GFS, and yet their checksums travel.
TEST_P(ExtentExchangeTest, FirstReadsOfCopiesThatAreOnSsdAlreadyTravelToo) {
  const RigOptions options{.ssd_bytes = 8 << 20};
  stage::DatasetOptions dataset = stage::RecordDataset();
  dataset.persist = true;
  Start(2, options, dataset);
  StageAll();
  const std::uint64_t read = GfsBytes();
  EXPECT_EQ(read, kFileBytes);
  const tier::ExtentKey key =
      rig(0).dataset().key(ExtentRanked({NodeRank(0), NodeRank(1)}));
  const std::uint64_t first = *rig(0).dataset().first_reads().Find(key);
  rig(1).dataset().first_reads().Forget();
  StartAgain(0, options, dataset);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  EXPECT_EQ(rig(0).dataset().progress().gfs_bytes, 0U);
  EXPECT_EQ(rig(1).dataset().first_reads().Find(key), first);
}

TEST_P(ExtentExchangeTest, NodesWithOtherObjectsAreToldApart) {
  Start(2);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes + 1000, 1)).has_value());
  const Status refused = rig(0).Demand(ExtentRanked({NodeRank(1), NodeRank(0)}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("configured alike"));
}

TEST_P(ExtentExchangeTest, ACompressedExtentTravelsCompressed) {
  stage::DatasetOptions dataset = stage::RecordDataset();
  dataset.compression = stage::Compression::kFast;
  Start(2, {}, dataset);
  StageAll();
  const ExtentId extent = ExtentRanked({NodeRank(1), NodeRank(0)});
  FOREBAY_EXPECT_OK(rig(0).Demand(extent));
  const tier::ExtentRef ours = rig(0).cache().Find(rig(0).dataset().key(extent));
  const tier::ExtentRef theirs = rig(1).cache().Find(rig(1).dataset().key(extent));
  ASSERT_TRUE(ours && theirs);
  EXPECT_EQ(ours->checksums.image, theirs->checksums.image);
  EXPECT_EQ(ours->checksums.pieces, theirs->checksums.pieces);
  EXPECT_TRUE(std::ranges::equal(ours->block.bytes(), theirs->block.bytes()));
  EXPECT_EQ(GfsBytes(), kFileBytes);
  const stage::DatasetProgress progress = rig(0).dataset().progress();
  EXPECT_LT(progress.staged_bytes, progress.total_bytes);
  EXPECT_EQ(progress.staged_bytes % 1000, 0U) << "bytes of the objects are counted";
}

// Each node has one reader thread, which waits for an extent of the other node: that node must be
// able to stage it all the same.
TEST_P(ExtentExchangeTest, NodesThatWaitForEachOthersExtentsStageThem) {
  Start(2, {.readers = 1});
  StageAll();
  // The extents are evicted, so that each has to be staged again for the node that asks.
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      const tier::ExtentKey& key = rig(rank).dataset().key(ExtentId(i));
      if (rig(rank).cache().Find(key)) {
        FOREBAY_EXPECT_OK(rig(rank).cache().Evict(key, std::nullopt));
      }
    }
  }
  std::vector<std::future<Status>> arrivals;
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    const std::uint32_t asks = Ranked(ExtentId(i)).front() == NodeRank(0) ? 1 : 0;
    const auto arrived = std::make_shared<std::promise<Status>>();
    arrivals.push_back(arrived->get_future());
    rig(asks).stager().Demand(rig(asks).dataset(), ExtentId(i),
                              [arrived](const Status& status) { arrived->set_value(status); });
  }
  for (std::future<Status>& arrival : arrivals) FOREBAY_EXPECT_OK(arrival.get());
  EXPECT_EQ(GfsBytes(), 2 * kFileBytes) << "each node has read its share twice";
}

INSTANTIATE_TEST_SUITE_P(
    Transports, ExtentExchangeTest,
    ::testing::Values(TransportKind::kInProcess, TransportKind::kGrpc),
    [](const auto& tested) { return TransportName(tested.param); });

}  // namespace
}  // namespace forebay::peer
