// Several nodes in one process catalogue a folder of many small files together: each file is asked
// for once in total, and all get the catalog that one node alone builds, to the byte. A node that
// does not answer, answers wrongly, or cannot look at a file changes nothing about that. Each test
// runs over both transports.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/peer/testing/exchange_node.h"
#include "server/peer/testing/node_transport.h"
#include "server/stage/stat_source.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::peer::stats_exchange_test {

using io::FaultKind;
using io::IoCall;
using io::testing::Take;
using stage::StageRig;
using ::testing::HasSubstr;

constexpr std::uint32_t kFolders = 7;
constexpr std::uint64_t kManyFiles = 3 * limits::kStatPathsMax + 100;  // four batches

class StatsExchangeTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  StatsExchangeTest() {
    EXPECT_TRUE(memory_.AddDirectory("/gfs").has_value());
    dataset_.source.name = "images";
    dataset_.source.format = catalog::Format::kImageFolder;
    dataset_.source.extent_bytes = 16 << 10;
  }
  // Before the nodes go: a server refers to its node.
  ~StatsExchangeTest() override { transport_->Stop(); }

  static std::string FolderName(std::uint64_t folder) { return "class" + std::to_string(folder); }
  // Files in several folders; some are deeper than others, and one is larger than an extent.
  static std::string FileName(std::uint64_t file) {
    return FolderName(file % kFolders) + (file % 10 == 3 ? "/more/" : "/") +
           std::to_string(100'000 + file) + ".jpg";
  }
  void Put(const std::string& path, std::size_t bytes) {
    ASSERT_TRUE(
        memory_.AddFile("/gfs/" + path, io::testing::Pattern(bytes, path.size())).has_value());
  }
  void AddFiles(std::uint64_t count) {
    for (; files_ < count; ++files_) Put(FileName(files_), files_ == 4 ? 40'000 : 1 + files_ % 50);
  }
  // Starts nodes 0 to count - 1, which have not begun.
  void Start(std::uint32_t count) {
    std::vector<plan::Node> all;
    for (std::uint32_t rank = 0; rank < count; ++rank) all.push_back({NodeRank(rank), 1});
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      nodes_.push_back(std::make_unique<ExchangeNode>(memory_, NodeRank(rank), all));
      FOREBAY_EXPECT_OK(nodes_.back()->Start(*transport_, {}, dataset_));
      CountStats(rank);
    }
  }
  StageRig& rig(std::uint32_t rank) { return nodes_[rank]->rig; }
  stage::Dataset& dataset(std::uint32_t rank) { return rig(rank).dataset(); }
  // Counts the node's calls for sizes from now on, without any fault.
  void CountStats(std::uint32_t rank) {
    rig(rank).gfs_faults.Arm({.call = IoCall::kStat, .nth = ~0ULL});
  }
  std::uint64_t StatsOf(std::uint32_t rank) { return rig(rank).gfs_faults.candidates_seen(); }
  std::uint64_t StatsOfAll() {
    std::uint64_t stats = 0;
    for (std::uint32_t rank = 0; rank < nodes_.size(); ++rank) stats += StatsOf(rank);
    return stats;
  }
  // Stages on these nodes at the same time; the outcome of each.
  std::vector<Status> StageOn(const std::vector<std::uint32_t>& ranks) {
    std::vector<Status> outcomes(ranks.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        threads.emplace_back([this, &outcomes, &ranks, i] {
          outcomes[i] = rig(ranks[i]).StageAll();
        });
      }
    }
    return outcomes;
  }
  // The image of the catalog that a node alone builds.
  std::vector<std::byte> ImageOfOneNode() {
    const auto root = Take(memory_.OpenDirectory("/gfs"));
    const auto catalog =
        Take(catalog::BuildFromMetadata(memory_, *root, dataset_.source, nullptr));
    EXPECT_EQ(catalog->object_count(), files_);
    return {catalog->image().begin(), catalog->image().end()};
  }
  void ExpectCatalogOfOneNode(const std::vector<std::uint32_t>& ranks) {
    const std::vector<std::byte> expected = ImageOfOneNode();
    for (const std::uint32_t rank : ranks) {
      ASSERT_NE(dataset(rank).catalog(), nullptr) << "node " << rank;
      EXPECT_TRUE(std::ranges::equal(dataset(rank).catalog()->image(), expected))
          << "node " << rank;
    }
  }
  // The nodes in the order in which they are asked for the files, which are a single batch.
  std::vector<NodeRank> Ranked() {
    EXPECT_LE(files_, limits::kStatPathsMax);
    const auto root = Take(memory_.OpenDirectory("/gfs"));
    const auto catalog =
        Take(catalog::BuildFromMetadata(memory_, *root, dataset_.source, nullptr));
    std::vector<std::string> paths;
    for (std::uint32_t i = 0; i < catalog->object_count(); ++i) {
      paths.emplace_back(catalog->object(ObjectId(i)).path);
    }
    return nodes_[0]->nodes.Ranked(stage::BatchKey(dataset(0).hash(), paths));
  }
  // Adds files to a single batch until the node is the first that is asked for it.
  void AddFilesOf(std::uint32_t rank) {
    AddFiles(50);
    while (Ranked().front() != NodeRank(rank)) AddFiles(files_ + 1);
  }

  io::MemoryBackend memory_;
  stage::DatasetOptions dataset_;
  std::uint64_t files_ = 0;
  const std::unique_ptr<NodeTransport> transport_ = MakeTransport(GetParam());
  std::vector<std::unique_ptr<ExchangeNode>> nodes_;
};

TEST_P(StatsExchangeTest, NodesAskForEachFileOnceAndGetTheCatalogOfOneNode) {
  AddFiles(kManyFiles);
  Start(3);
  for (const Status& staged : StageOn({0, 1, 2})) FOREBAY_EXPECT_OK(staged);
  ExpectCatalogOfOneNode({0, 1, 2});
  EXPECT_EQ(StatsOfAll(), kManyFiles);
  std::uint64_t counted = 0;
  std::uint64_t opened = 0;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    counted += dataset(rank).progress().gfs_stats;
    opened += dataset(rank).progress().gfs_opens;
    FOREBAY_EXPECT_OK(rig(rank).Demand(ExtentId(rank)));
  }
  EXPECT_EQ(opened, kManyFiles);
  // A file is compared with its catalog once more when it was read; a large file, whenever one of
  // its extents was read.
  constexpr std::uint64_t kExtentsOfTheLargeFile = 3;
  constexpr std::uint64_t kCheckedAfterReads = kManyFiles - 1 + kExtentsOfTheLargeFile;
  EXPECT_EQ(counted, kManyFiles + kCheckedAfterReads)
      << "calls are counted by the node that makes them";
}

TEST_P(StatsExchangeTest, ANodeThatComesLaterAsksTheGfsForNothing) {
  AddFiles(kManyFiles);
  Start(2);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  EXPECT_EQ(StatsOfAll(), kManyFiles);
  EXPECT_GT(StatsOf(0) + StatsOf(1), 0U) << "node 1 has answered for its batches";
  FOREBAY_EXPECT_OK(rig(1).StageAll());
  ExpectCatalogOfOneNode({0, 1});
  EXPECT_EQ(StatsOfAll(), kManyFiles);
}

TEST_P(StatsExchangeTest, TheNextNodeAsksForTheFilesOfANodeThatIsSilent) {
  AddFiles(kManyFiles);
  Start(3);
  transport_->Silence(NodeRank(1));
  for (const Status& staged : StageOn({0, 2})) FOREBAY_EXPECT_OK(staged);
  ExpectCatalogOfOneNode({0, 2});
  EXPECT_EQ(StatsOfAll(), kManyFiles) << "no file is asked for twice";
  EXPECT_EQ(StatsOf(1), 0U);
}

TEST_P(StatsExchangeTest, TheLastNodeAsksForEverything) {
  AddFiles(kManyFiles);
  Start(3);
  transport_->Silence(NodeRank(1));
  transport_->Silence(NodeRank(2));
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  ExpectCatalogOfOneNode({0});
  EXPECT_EQ(StatsOf(0), kManyFiles);
}

TEST_P(StatsExchangeTest, AnAnswerWithTooManySizesIsRefusedAndItsNodeCountsAsAlive) {
  Start(2);
  AddFilesOf(1);
  transport_->SetSendsMoreStats(NodeRank(1));
  for (const Status& staged : StageOn({0, 1})) FOREBAY_EXPECT_OK(staged);
  ExpectCatalogOfOneNode({0, 1});
  EXPECT_EQ(transport_->stat_requests(NodeRank(1)), 1U);
  EXPECT_EQ(StatsOf(0), files_);
  EXPECT_EQ(StatsOf(1), files_);
  EXPECT_TRUE(nodes_[0]->nodes.Lives(NodeRank(1)));
}

TEST_P(StatsExchangeTest, AFileThatVanishesAfterTheListingIsNamedByAllNodes) {
  Start(2);
  AddFiles(50);
  // The last folder's list is held back, and the files of all folders are asked for after it.
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    rig(rank).gfs_faults.Arm(
        {.kind = FaultKind::kStall, .call = IoCall::kList, .path = FolderName(kFolders - 1)});
  }
  std::jthread remove([this] {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      while (rig(rank).gfs_faults.faults_injected() == 0) std::this_thread::yield();
    }
    FOREBAY_EXPECT_OK(Take(memory_.OpenDirectory("/gfs"))->Unlink(FileName(9)));
    for (std::uint32_t rank = 0; rank < 2; ++rank) rig(rank).gfs_faults.ReleaseStalls();
  });
  for (const Status& staged : StageOn({0, 1})) {
    ASSERT_FALSE(staged.has_value());
    EXPECT_THAT(staged.error().message(), HasSubstr("NOT_FOUND"));
    EXPECT_THAT(staged.error().message(), HasSubstr("'" + FileName(9) + "'"));
  }
  remove.join();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(nodes_[rank]->nodes.Lives(NodeRank(1 - rank)));
  }
  // Without that file all is well.
  --files_;
  for (const Status& staged : StageOn({0, 1})) FOREBAY_EXPECT_OK(staged);
  ExpectCatalogOfOneNode({0, 1});
}

TEST_P(StatsExchangeTest, ANodeWhoseWayToTheGfsHasFailedStopsNoOtherNode) {
  Start(2);
  AddFilesOf(1);
  rig(1).gfs_faults.Arm({.call = IoCall::kStat, .is_persistent = true, .path = FileName(9)});
  const std::vector<Status> staged = StageOn({0, 1});
  FOREBAY_EXPECT_OK(staged[0]);
  ExpectCatalogOfOneNode({0});
  EXPECT_GT(StatsOf(0), 0U) << "from the file on that failed";
  EXPECT_LT(StatsOf(0), files_);
  ASSERT_FALSE(staged[1].has_value());
  EXPECT_THAT(staged[1].error().message(), HasSubstr("injected fault"));
}

TEST_P(StatsExchangeTest, AFileThatWasMendedIsLookedAtAgain) {
  Start(2);
  AddFilesOf(1);
  Put(FileName(9), 0);
  for (const Status& staged : StageOn({0, 1})) {
    ASSERT_FALSE(staged.has_value());
    EXPECT_THAT(staged.error().message(), HasSubstr("the file is empty"));
  }
  Put(FileName(9), 77);
  for (const Status& staged : StageOn({0, 1})) FOREBAY_EXPECT_OK(staged);
  ExpectCatalogOfOneNode({0, 1});
}

TEST_P(StatsExchangeTest, ARebuildAsksTheGfsForEveryFile) {
  Start(2);
  AddFilesOf(1);
  for (const Status& staged : StageOn({0, 1})) FOREBAY_EXPECT_OK(staged);
  Put(FileName(9), 77);
  CountStats(0);
  CountStats(1);
  FOREBAY_EXPECT_OK(rig(0).StageAll(/*rebuild=*/true));
  EXPECT_EQ(StatsOf(0), files_);
  EXPECT_EQ(StatsOf(1), 0U);
  ExpectCatalogOfOneNode({0});
}

INSTANTIATE_TEST_SUITE_P(
    Transports, StatsExchangeTest,
    ::testing::Values(TransportKind::kInProcess, TransportKind::kGrpc),
    [](const auto& tested) { return TransportName(tested.param); });

}  // namespace forebay::peer::stats_exchange_test
