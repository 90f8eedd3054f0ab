// Several nodes in one process catalogue a data set without an index (tar, JSON lines) together:
// each scans its own objects, so the GFS is read once in total, and all get the catalog that one
// node alone builds, to the byte. A node that does not answer, sends wrong parts, or has a saved
// catalog changes nothing about that. Each test runs over both transports.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/tar_text.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/peer/testing/exchange_node.h"
#include "server/peer/testing/node_transport.h"
#include "server/stage/extent_groups.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::peer {
namespace {

using catalog::PatternText;
using catalog::TarEndText;
using catalog::TarFileText;
using io::testing::Take;
using stage::RigOptions;
using stage::StageRig;
using ::testing::HasSubstr;

constexpr std::uint32_t kObjects = 12;

class ScanExchangeTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  // Before the nodes go: a server refers to its node.
  ~ScanExchangeTest() override { transport_->Stop(); }

  static std::string ArchiveName(std::uint32_t object) {
    return "shard" + std::to_string(100 + object) + ".tar";
  }
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(memory_.AddFile("/gfs/" + name, catalog::TextBytes(text)).has_value());
    bytes_ += text.size();
  }
  // Archives of different sizes, with fields that not all of them have; one has no sample.
  void AddArchives() {
    dataset_.source.name = "shards";
    dataset_.source.extent_bytes = 16 << 10;
    for (std::uint32_t object = 0; object < kObjects; ++object) {
      std::string text;
      for (std::uint32_t i = 0; i < 10 + 3 * object && object != 5; ++i) {
        const std::string key = std::to_string(1000 * object + i);
        text += TarFileText(key + ".bin", PatternText(300 + 37 * i + (i == 7 ? 40'000 : 0), i));
        text += TarFileText(key + ".m" + std::to_string(object % 4), std::to_string(i));
      }
      Put(ArchiveName(object), text + TarEndText());
    }
  }
  void AddLines() {
    dataset_.source.name = "lines";
    dataset_.source.extent_bytes = 4 << 10;
    for (std::uint32_t object = 0; object < kObjects; ++object) {
      std::string text;
      for (std::uint32_t i = 0; i < 100 * object; ++i) {
        text += "{\"line\": " + std::to_string(i * object) + "}\n";
      }
      Put("lines" + std::to_string(100 + object) + ".jsonl", text);
    }
  }
  // Starts nodes 0 to count - 1, which have not begun.
  void Start(std::uint32_t count, RigOptions options = {}) {
    std::vector<plan::Node> all;
    for (std::uint32_t rank = 0; rank < count; ++rank) all.push_back({NodeRank(rank), 1});
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      nodes_.push_back(std::make_unique<ExchangeNode>(memory_, NodeRank(rank), all));
      FOREBAY_EXPECT_OK(nodes_.back()->Start(*transport_, options, dataset_));
    }
  }
  StageRig& rig(std::uint32_t rank) { return nodes_[rank]->rig; }
  stage::Dataset& dataset(std::uint32_t rank) { return rig(rank).dataset(); }
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
  void StageOnAll() {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < nodes_.size(); ++rank) ranks.push_back(rank);
    for (const Status& staged : StageOn(ranks)) FOREBAY_EXPECT_OK(staged);
  }
  // Whether cataloguing ends, one way or the other.
  static bool EndsWithin(std::chrono::seconds limit, const stage::Dataset& dataset) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (dataset.catalog() == nullptr &&
           dataset.progress().state != stage::DatasetState::kFailed) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // The last of many archives gets smaller after node `early` has listed it and before the other
  // node does.
  void ExpectEndWhereOneHasListedAnotherSize(std::uint32_t early) {
    constexpr std::uint32_t kMany = 64;
    const std::uint32_t late = 1 - early;
    const std::string changed = ArchiveName(kMany);
    dataset_.source.name = "shards";
    dataset_.source.extent_bytes = 16 << 10;
    for (std::uint32_t object = 0; object < kMany; ++object) {
      Put(ArchiveName(object),
          TarFileText(std::to_string(object) + ".bin", PatternText(9'000, object)) + TarEndText());
    }
    Put(changed, TarFileText("old.bin", PatternText(200'000, 1)) + TarEndText());
    Start(2);
    rig(late).gfs_faults.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kList});
    rig(early).stager().Stage(dataset(early));
    // It has scanned its own objects by now, and asks the other node, which begins.
    while (rig(late).gfs_faults.faults_injected() == 0) std::this_thread::yield();
    Put(changed, TarFileText("new.bin", "x") + TarEndText());
    rig(late).gfs_faults.ReleaseStalls();
    bool has_failed = false;
    for (const std::uint32_t rank : {early, late}) {
      ASSERT_TRUE(EndsWithin(std::chrono::seconds(30), dataset(rank))) << "node " << rank;
      if (dataset(rank).catalog() != nullptr) continue;
      has_failed = true;
      EXPECT_THAT(dataset(rank).progress().error, HasSubstr("'" + changed + "'"));
    }
    EXPECT_TRUE(has_failed);
  }
  std::uint64_t GfsBytes() {
    std::uint64_t bytes = 0;
    for (const auto& node : nodes_) bytes += node->rig.dataset().progress().gfs_bytes;
    return bytes;
  }
  std::uint64_t GfsOpens() {
    std::uint64_t opens = 0;
    for (const auto& node : nodes_) opens += node->rig.dataset().progress().gfs_opens;
    return opens;
  }
  // The nodes in the order in which they are asked for an object.
  std::vector<NodeRank> Ranked(std::uint32_t object) {
    std::vector<std::uint64_t> bytes;
    const auto info = Take(dataset(0).root().List(""));
    std::vector<std::string> names;
    for (const io::DirectoryEntry& entry : info) names.push_back(entry.name);
    std::ranges::sort(names);
    for (const std::string& name : names) bytes.push_back(Take(dataset(0).root().Stat(name)).bytes);
    return nodes_[0]->nodes.Ranked(
        stage::ScanGroupShares(dataset(0).hash(), bytes, nodes_[0]->nodes)[object].key);
  }
  std::uint32_t ObjectOwnedBy(std::uint32_t rank) {
    for (std::uint32_t object = 0; object < kObjects; ++object) {
      if (Ranked(object).front() == NodeRank(rank)) return object;
    }
    ADD_FAILURE() << "node " << rank << " owns no object";
    return 0;
  }
  // The image of the catalog that a node alone builds.
  std::vector<std::byte> ImageOfOneNode() {
    StageRig alone(memory_, "");
    FOREBAY_EXPECT_OK(alone.Start(dataset_));
    FOREBAY_EXPECT_OK(alone.StageAll());
    const auto image = alone.dataset().catalog()->image();
    return {image.begin(), image.end()};
  }
  void ExpectCatalogOfOneNode(std::uint32_t rank) {
    ASSERT_NE(dataset(rank).catalog(), nullptr) << "node " << rank;
    EXPECT_TRUE(std::ranges::equal(dataset(rank).catalog()->image(), ImageOfOneNode()))
        << "node " << rank;
  }
  // Each node has the extents of its own objects, and no others; and can get all of them.
  void ExpectShares() {
    for (std::uint32_t rank = 0; rank < nodes_.size(); ++rank) {
      const auto catalog = dataset(rank).catalog();
      for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
        const ExtentId extent(i);
        const bool owns =
            Ranked(catalog->extent(extent).first_object.value()).front() == NodeRank(rank);
        const bool has = rig(rank).cache().Find(dataset(rank).key(extent)) != nullptr;
        EXPECT_EQ(has, owns) << "extent " << i << " on node " << rank;
        EXPECT_EQ(dataset(rank).ExtentOf(dataset(rank).key(extent)), extent);
      }
    }
    for (std::uint32_t rank = 0; rank < nodes_.size(); ++rank) {
      for (std::uint32_t i = 0; i < rig(rank).extent_count(); ++i) {
        FOREBAY_EXPECT_OK(rig(rank).Demand(ExtentId(i)));
      }
      FOREBAY_EXPECT_OK(rig(rank).VerifyAll());
    }
  }

  io::MemoryBackend memory_;
  stage::DatasetOptions dataset_;
  std::uint64_t bytes_ = 0;  // of all objects
  const std::unique_ptr<NodeTransport> transport_ = MakeTransport(GetParam());
  std::vector<std::unique_ptr<ExchangeNode>> nodes_;
};

TEST_P(ScanExchangeTest, NodesScanEachArchiveOnceAndGetTheCatalogOfOneNode) {
  AddArchives();
  Start(3);
  StageOnAll();
  EXPECT_EQ(GfsBytes(), bytes_);
  EXPECT_EQ(GfsOpens(), kObjects);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ExpectCatalogOfOneNode(rank);
    EXPECT_GT(dataset(rank).progress().gfs_bytes, 0U) << "node " << rank;
    EXPECT_EQ(dataset(rank).bytes_without_home(), 0U) << "extents of others need no home";
  }
  ExpectShares();
  EXPECT_EQ(GfsBytes(), bytes_) << "extents are copied from their owners";
}

TEST_P(ScanExchangeTest, NodesScanEachFileOfLinesOnceAndGetTheCatalogOfOneNode) {
  AddLines();
  Start(4);
  StageOnAll();
  EXPECT_EQ(GfsBytes(), bytes_);
  EXPECT_EQ(GfsOpens(), kObjects);
  for (std::uint32_t rank = 0; rank < 4; ++rank) ExpectCatalogOfOneNode(rank);
  ExpectShares();
  EXPECT_EQ(GfsBytes(), bytes_);
}

// Each node has one reader thread, which must not wait for the other node.
TEST_P(ScanExchangeTest, ANodeThatHasNotBegunScansForTheNodeThatAsks) {
  AddArchives();
  Start(2, {.readers = 1});
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  ExpectCatalogOfOneNode(0);
  FOREBAY_EXPECT_OK(stage::AwaitPassEnd(dataset(1)));
  ExpectCatalogOfOneNode(1);
  EXPECT_EQ(GfsBytes(), bytes_);
}

TEST_P(ScanExchangeTest, TheFirstSubstituteThatLivesScansTheObjectsOfANodeThatIsGone) {
  AddArchives();
  Start(3);
  transport_->Silence(NodeRank(1));
  for (const Status& staged : StageOn({0, 2})) FOREBAY_EXPECT_OK(staged);
  EXPECT_EQ(GfsBytes(), bytes_) << "no object is scanned twice";
  EXPECT_EQ(dataset(1).progress().gfs_bytes, 0U);
  ExpectCatalogOfOneNode(0);
  ExpectCatalogOfOneNode(2);
  for (const std::uint32_t rank : {0U, 2U}) {
    for (std::uint32_t i = 0; i < rig(rank).extent_count(); ++i) {
      FOREBAY_EXPECT_OK(rig(rank).Demand(ExtentId(i)));
    }
    FOREBAY_EXPECT_OK(rig(rank).VerifyAll());
  }
  EXPECT_EQ(GfsBytes(), bytes_);
}

TEST_P(ScanExchangeTest, TheLastNodeScansEverything) {
  AddLines();
  Start(3);
  transport_->Silence(NodeRank(1));
  transport_->Silence(NodeRank(2));
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  ExpectCatalogOfOneNode(0);
  EXPECT_EQ(dataset(0).progress().gfs_bytes, bytes_);
}

TEST_P(ScanExchangeTest, AWrongPartIsRefusedAndTheNextNodeIsAsked) {
  AddArchives();
  Start(2);
  transport_->SetFlipsBits(NodeRank(1));
  StageOnAll();
  ExpectCatalogOfOneNode(0);
  ExpectCatalogOfOneNode(1);
  EXPECT_GT(transport_->parts_sent(NodeRank(1)), 0U);
  EXPECT_GT(GfsBytes(), bytes_) << "node 0 scans what node 1 has sent wrongly";
  EXPECT_TRUE(nodes_[0]->nodes.Lives(NodeRank(1))) << "it does answer";
}

TEST_P(ScanExchangeTest, ACatalogThatIsThereAlreadyAnswersForItsObjects) {
  AddLines();
  Start(2);
  StageOnAll();
  const std::uint64_t scanned = GfsBytes();
  // A third party asks with the plan that it has made: all parts come from the complete catalog.
  const auto scans = Take(catalog::PlanScan(dataset(0).root(), [this] {
    catalog::DatasetSource source = dataset_.source;
    source.format = dataset(0).catalog()->format();
    return source;
  }()));
  catalog::PartMerger merger(scans);
  for (std::uint32_t i = 0; i < scans.objects.size(); ++i) {
    catalog::TableSpool bytes({});
    const auto sent = transport_->ReadPart({.node = NodeRank(i % 2),
                                            .dataset = dataset(0),
                                            .object = ObjectId(i),
                                            .planned = scans.objects[i]},
                                           bytes);
    ASSERT_TRUE(sent.has_value()) << sent.error().ToString();
    ASSERT_TRUE(sent->is_there);
    const auto part = Take(catalog::DecodePart(scans.format, scans.objects[i], {}, bytes));
    ASSERT_TRUE(merger.Add(ObjectId(i), *part).has_value());
  }
  EXPECT_TRUE(std::ranges::equal(Take(merger.Write())->image(), dataset(1).catalog()->image()));
  EXPECT_EQ(GfsBytes(), scanned);
}

TEST_P(ScanExchangeTest, AllNodesReportTheFirstObjectThatIsMalformed) {
  AddArchives();
  Start(3);
  std::string expected;
  for (const std::uint32_t object : {9U, 2U, 4U}) {
    Put(ArchiveName(object), TarFileText("a.bin", "x") + std::string(512, 'x'));
  }
  {
    StageRig alone(memory_, "");
    FOREBAY_EXPECT_OK(alone.Start(dataset_));
    expected = alone.StageAll().error().message();
  }
  EXPECT_THAT(expected, HasSubstr("'" + ArchiveName(2) + "' at offset 1024"));
  const std::string text = expected.substr(expected.find('\''));
  for (const Status& staged : StageOn({0, 1, 2})) {
    ASSERT_FALSE(staged.has_value());
    EXPECT_THAT(staged.error().message(), HasSubstr(text));
  }
}

TEST_P(ScanExchangeTest, AnObjectThatChangedBetweenTheScansOfTwoNodesIsNamed) {
  AddArchives();
  Start(2);
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  FOREBAY_EXPECT_OK(stage::AwaitPassEnd(dataset(1)));
  // A node that begins later sees another object than the one that was scanned.
  const std::uint32_t object = ObjectOwnedBy(1);
  Put(ArchiveName(object), TarFileText("new.bin", "x") + TarEndText());
  catalog::PlannedObject planned{.path = ArchiveName(object)};
  const io::FileInfo info = Take(dataset(0).root().Stat(planned.path));
  planned.bytes = info.bytes;
  planned.mtime_ns = info.mtime_ns;
  catalog::TableSpool bytes({});
  const auto refused = transport_->ReadPart({.node = NodeRank(1),
                                             .dataset = dataset(0),
                                             .object = ObjectId(object),
                                             .planned = planned},
                                            bytes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfRange);
  EXPECT_THAT(refused.error().message(), HasSubstr("'" + planned.path + "'"));
  EXPECT_THAT(refused.error().message(), HasSubstr("must not change during a job"));
}

// The sizes of objects decide who scans which one. So nodes that have listed other sizes may each
// take the other one for the owner of an object that has not changed at all. Of the two nodes, the
// one that gets too much by hashing alone has listed the old sizes in one of these tests.
TEST_P(ScanExchangeTest, NodesThatHaveListedOtherSizesDoNotWaitForEachOther) {
  ExpectEndWhereOneHasListedAnotherSize(/*early=*/0);
}
TEST_P(ScanExchangeTest, NodesThatHaveListedOtherSizesDoNotWaitForEachOtherTheOtherWayRound) {
  ExpectEndWhereOneHasListedAnotherSize(/*early=*/1);
}

TEST_P(ScanExchangeTest, AFailureOfTheOwnersGfsIsTheErrorHereAndNotTakenForSilence) {
  AddArchives();
  Start(2);
  rig(1).gfs_faults.Arm({.call = io::IoCall::kRead, .is_persistent = true});
  const std::vector<Status> failed = StageOn({0, 1});
  for (const Status& status : failed) {
    ASSERT_FALSE(status.has_value());
    EXPECT_THAT(status.error().message(), HasSubstr("injected fault"));
  }
  EXPECT_TRUE(nodes_[0]->nodes.Lives(NodeRank(1)));
  EXPECT_LT(GfsBytes(), bytes_) << "node 0 does not read in its place";
}

// Node 1 has heard of a failure that is almost as old as one may be that nodes still report. Node 0
// hears of it, and remembers it with that age, so that it does not start a life of its own.
TEST_P(ScanExchangeTest, AFailureThatWasReportedKeepsItsAgeAndItsText) {
  AddArchives();
  Start(2);
  const std::int64_t found_ns =
      rig(1).clock().NowNs() - stage::CatalogFailure::kKnownNs + 5'000'000'000;
  const Error error(ErrorCode::kDataLoss, "node 7: 'x.tar' is truncated");
  dataset(1).Fail({.error = error, .at_ns = found_ns, .is_reported = true});
  EXPECT_FALSE(rig(0).StageAll().has_value());
  const auto failure = dataset(0).failure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error.message(), error.message());
  EXPECT_TRUE(failure->is_reported);
  EXPECT_NEAR(static_cast<double>(failure->at_ns), static_cast<double>(found_ns), 1e9);
}

// Two nodes remember a failure that each could have from the other one. Once it is old, neither
// reports it any more, so both try again.
TEST_P(ScanExchangeTest, AFailureThatIsOldIsNotReportedButTheNodeBeginsAgain) {
  AddArchives();
  Start(2);
  for (const std::uint32_t rank : {0U, 1U}) {
    dataset(rank).Fail({.error = Error(ErrorCode::kDataLoss, "node 7: was truncated"),
                        .at_ns = rig(rank).clock().NowNs() - stage::CatalogFailure::kKnownNs,
                        .is_reported = true});
  }
  FOREBAY_EXPECT_OK(rig(0).StageAll());
  ExpectCatalogOfOneNode(0);
  FOREBAY_EXPECT_OK(stage::AwaitPassEnd(dataset(1)));
  ExpectCatalogOfOneNode(1);
}

INSTANTIATE_TEST_SUITE_P(
    Transports, ScanExchangeTest,
    ::testing::Values(TransportKind::kInProcess, TransportKind::kGrpc),
    [](const auto& tested) { return TransportName(tested.param); });

}  // namespace
}  // namespace forebay::peer
