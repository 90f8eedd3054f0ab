// Four daemons of one job and a data set without an index (tar, JSON lines): they share the scan as
// they share the reading of other data sets, so each byte comes from the GFS once for all, and the
// epoch is exact, also after one of them was killed while it scanned. What is wrong with an object
// is an error on all nodes that names it, and is over when the object is sound.
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/nodes_scan_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

class NodesScanTest : public ScannedNodes {
 protected:
  NodesScanTest() : ScannedNodes(16'384) {}
  std::uint64_t GfsOpensOfAll() {
    std::uint64_t opens = 0;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      opens += ClientOf(rank)->Status().gfs().opens();
    }
    return opens;
  }
};

TEST_P(NodesScanTest, EveryFileIsScannedOnceForAllNodes) {
  StartAll();
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    ExpectExact(ReadTogether({0, 1, 2, 3}, epoch));
  }
  AwaitStagedEverywhere();
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    EXPECT_GT(GfsBytes(rank), 0U) << "each node has a share";
    EXPECT_LT(GfsBytes(rank), rig_.file_bytes() / 2) << "and none has most of it";
  }
  EXPECT_EQ(GfsBytesOfAll(), rig_.file_bytes());
  EXPECT_EQ(GfsOpensOfAll(), kScannedFiles);
}

TEST_P(NodesScanTest, ADaemonThatIsKilledWhileItScansCostsNoSample) {
  StartAll();
  // The daemons have begun to scan when they are ready. Whatever this one has found is lost.
  daemons_[2]->Kill();
  ExpectExact(ReadTogether({0, 1, 3}, 0));
  ExpectExact(ReadTogether({0, 1, 3}, 1));
  std::uint64_t bytes = 0;
  for (const std::uint32_t rank : {0U, 1U, 3U}) bytes += GfsBytes(rank);
  EXPECT_LE(bytes, rig_.file_bytes()) << "those that are left read no byte twice";
}

INSTANTIATE_TEST_SUITE_P(Formats, NodesScanTest,
                         ::testing::Values(RecordFiles::kArchives, RecordFiles::kLines), FilesName);

class ScanStartTest : public ScannedNodes {};

// The others have waited for it, so it gets its share, and nobody else scans that.
TEST_P(ScanStartTest, ANodeThatComesLateScansItsShare) {
  for (std::uint32_t rank = 0; rank + 1 < kNodes; ++rank) daemons_.push_back(StartNode(rank, {}));
  ASSERT_TRUE(Eventually([this] { return EntriesInRendezvous() >= kNodes - 1; }));
  daemons_.push_back(StartNode(kNodes - 1, {}));
  for (const auto& daemon : daemons_) ASSERT_FALSE(daemon->ready_line().empty());
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  EXPECT_EQ(GfsBytesOfAll(), rig_.file_bytes());
  EXPECT_GT(GfsBytes(kNodes - 1), 0U);
}

TEST_P(ScanStartTest, OneReaderMakesAllNodesScan) {
  SetInConfig("stage_at_start = false\n");
  StartAll();
  EXPECT_EQ(GfsBytesOfAll(), 0U);
  ExpectExact(ReadTogether({2}, 0));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
  AwaitStagedEverywhere();
  EXPECT_EQ(GfsBytesOfAll(), rig_.file_bytes());
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) EXPECT_GT(GfsBytes(rank), 0U);
}

// Both formats, whichever comes first. Each daemon has one reader thread, which must serve the
// other nodes while it waits for their parts of both data sets.
TEST_P(ScanStartTest, TwoDataSetsAreScannedAtOnce) {
  constexpr std::uint64_t kFirstOfOther = 1 << 20;
  const RecordFiles other =
      GetParam() == RecordFiles::kLines ? RecordFiles::kArchives : RecordFiles::kLines;
  rig_.AddDataset("other", other, kFirstOfOther);
  StartAll({"--set", "stage.readers=1"});
  auto of_other = std::async(std::launch::async, [&] {
    return ReadTogether({0, 1, 2, 3},
                        {.dataset = "other", .first_record = kFirstOfOther});
  });
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  const EpochCounts counts = of_other.get();
  EXPECT_EQ(counts.distinct, records_);
  EXPECT_EQ(counts.samples, records_);
  EXPECT_EQ(counts.wrong, 0U);
  AwaitStagedEverywhere();
  EXPECT_EQ(GfsBytesOfAll(), rig_.file_bytes() + rig_.file_bytes("other"));
}

TEST_P(ScanStartTest, NodesWithoutASavedCatalogGetItFromThoseThatHaveOne) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  std::vector<std::uint64_t> shares;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) shares.push_back(GfsBytes(rank));
  EndAll();
  for (const std::uint32_t rank : {1U, 2U}) ForgetState(rank);
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
  AwaitStagedEverywhere();
  // What they have scanned is on their SSDs, but only a scan says what it is.
  for (const std::uint32_t rank : {0U, 3U}) EXPECT_EQ(GfsBytes(rank), 0U) << "node " << rank;
  for (const std::uint32_t rank : {1U, 2U}) EXPECT_LE(GfsBytes(rank), shares[rank]);
}

INSTANTIATE_TEST_SUITE_P(Formats, ScanStartTest,
                         ::testing::Values(RecordFiles::kArchives, RecordFiles::kLines), FilesName);

class ScanDamageTest : public ScannedNodes {
 protected:
  // What no scanner of the format accepts.
  std::string Malformed() {
    return GetParam() == RecordFiles::kArchives ? std::string(4096, 'x') : "\xff\xfe{}\n";
  }
};

// A node has at most its share of the objects, and one, so several nodes have malformed ones.
TEST_P(ScanDamageTest, AllNodesReportTheFirstMalformedObjectAndServeOnceAllAreSound) {
  constexpr std::uint32_t kFirst = 5;
  for (std::uint32_t file = kFirst; file < kFirst + 16; ++file) Replace(PathOf(file), Malformed());
  StartAll();
  for (const std::string& error : CataloguingErrors()) {
    EXPECT_THAT(error, HasSubstr("'" + rig_.ObjectName(kFirst) + "'"));
  }
  for (std::uint32_t file = kFirst; file < kFirst + 16; ++file) {
    Replace(PathOf(file), rig_.ObjectText(file));
  }
  AwaitCataloguedEverywhere(rig_.ObjectName(kFirst));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
}

INSTANTIATE_TEST_SUITE_P(Formats, ScanDamageTest,
                         ::testing::Values(RecordFiles::kArchives, RecordFiles::kLines), FilesName);

// An object changes between the looks of two nodes. Each node has a view of the GFS of its own: a
// folder with links to the same files, at a path that leads to another folder when the next daemon
// is started. So a test says which node has seen what.
class ScanViewsTest : public ScannedNodes {
 protected:
  ScanViewsTest() : ScannedNodes(4096, "view") {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      std::filesystem::create_directory(View(rank));
      for (std::uint32_t file = 0; file < kScannedFiles; ++file) Show(file, rank);
    }
  }
  std::string View(std::uint32_t rank) { return rig_.folder() + "/view" + std::to_string(rank); }
  std::string PathIn(std::uint32_t rank, std::uint32_t file) {
    return View(rank) + "/" + rig_.ObjectName(file);
  }
  // Has the node see the file as it is on the GFS.
  void Show(std::uint32_t file, std::uint32_t rank) {
    std::filesystem::remove(PathIn(rank, file));
    if (std::filesystem::exists(PathOf(file))) {
      std::filesystem::create_hard_link(PathOf(file), PathIn(rank, file));
    }
  }
  void ShowAll(std::uint32_t file) {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) Show(file, rank);
  }
  // A daemon opens the folders of its data sets before it publishes its address.
  void StartInViews() {
    const std::string path = rig_.folder() + "/view";
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      std::filesystem::remove(path);
      std::filesystem::create_directory_symlink(View(rank), path);
      daemons_.push_back(StartNode(rank, {}));
      ASSERT_TRUE(Eventually([&] { return HasOpen(*daemons_[rank], View(rank)); }));
    }
    for (const auto& daemon : daemons_) ASSERT_FALSE(daemon->ready_line().empty());
  }
  static bool HasOpen(const DaemonProcess& daemon, const std::string& path) {
    const std::string fds = "/proc/" + std::to_string(daemon.pid()) + "/fd";
    std::error_code gone;
    for (const auto& fd : std::filesystem::directory_iterator(fds, gone)) {
      if (std::filesystem::read_symlink(fd, gone) == path) return true;
    }
    return false;
  }
  // The file was changed or removed, and only `stale` has seen it as it was.
  void ExpectThatAllNameIt(std::uint32_t file, std::uint32_t stale) {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      if (rank != stale) Show(file, rank);
    }
    StartInViews();
    bool has_failed = false;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      has_failed = FailsByName(rank, rig_.ObjectName(file)) || has_failed;
    }
    EXPECT_TRUE(has_failed) << "nodes that differ must say so";
  }
  // The remedy for objects that have changed.
  void RebuildEverywhere() {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) Rebuild(rank);
  }
};

TEST_P(ScanViewsTest, AnObjectOfAnotherTimeIsNamedByAll) {
  constexpr std::uint32_t kFile = 4;
  Replace(PathOf(kFile), rig_.ObjectText(kFile, /*is_rewritten=*/true));
  ExpectThatAllNameIt(kFile, /*stale=*/1);
  ShowAll(kFile);
  RebuildEverywhere();
  ExpectRewritten(ReadTogether({0, 1, 2, 3}, 0));
}

// The sizes of objects decide who scans which one, so the nodes differ about others, too.
TEST_P(ScanViewsTest, AnObjectOfAnotherSizeIsNamedByAll) {
  for (const std::uint32_t stale : {0U, 1U, 2U, 3U}) {
    SCOPED_TRACE("stale: node " + std::to_string(stale));
    Replace(PathOf(kLast), rig_.ObjectText(kLast));
    ShowAll(kLast);
    Replace(PathOf(kLast), rig_.ObjectText(kLast, /*is_rewritten=*/true, 3 << 19));
    ExpectThatAllNameIt(kLast, stale);
    ShowAll(kLast);
    if (stale == 3) break;
    daemons_.clear();
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) ForgetState(rank);
  }
  RebuildEverywhere();
  ExpectRewritten(ReadTogether({0, 1, 2, 3}, 0));
}

INSTANTIATE_TEST_SUITE_P(Formats, ScanViewsTest,
                         ::testing::Values(RecordFiles::kArchives, RecordFiles::kLines), FilesName);

// Catalogs of an earlier job, on some of the nodes, and an object that is another one now.
class SavedScanTest : public ScannedNodes {
 protected:
  static constexpr std::uint32_t kFile = 17;
  void EndFirstJob() {
    StartAll();
    ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
    AwaitStagedEverywhere();
    EndAll();
    for (const std::uint32_t rank : {0U, 2U}) ForgetState(rank);
  }
  void ExpectThatAllNameIt() {
    StartAll();
    for (const std::string& error : CataloguingErrors()) {
      EXPECT_THAT(error, HasSubstr("'" + rig_.ObjectName(kFile) + "'"));
    }
  }
};

TEST_P(SavedScanTest, AnObjectThatChangedIsNamedByAllUntilARebuild) {
  for (const std::uint64_t more_bytes : {0U, 1024U}) {
    EndFirstJob();
    Replace(PathOf(kFile), rig_.ObjectText(kFile, /*is_rewritten=*/true, more_bytes));
    ExpectThatAllNameIt();
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) Rebuild(rank);
    ExpectRewritten(ReadTogether({0, 1, 2, 3}, 1));
    EndAll();
    Replace(PathOf(kFile), rig_.ObjectText(kFile));
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) ForgetState(rank);
  }
}

TEST_P(SavedScanTest, AnObjectThatVanishedIsNamedByAllUntilItIsBack) {
  EndFirstJob();
  const std::string aside = rig_.folder() + "/aside";
  std::filesystem::rename(PathOf(kFile), aside);
  ExpectThatAllNameIt();
  std::filesystem::rename(aside, PathOf(kFile));
  AwaitCataloguedEverywhere(rig_.ObjectName(kFile));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
}

INSTANTIATE_TEST_SUITE_P(Formats, SavedScanTest,
                         ::testing::Values(RecordFiles::kArchives, RecordFiles::kLines), FilesName);

}  // namespace
}  // namespace forebay::integration
