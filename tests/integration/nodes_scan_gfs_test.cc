// Four daemons that share the scan of a data set without an index, over an emulated GFS that stops
// in the middle of it: a daemon is killed there, or the object that it reads is rewritten under its
// hands; and a GFS that fails for longer than the daemons wait.
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "tests/integration/nodes_scan_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

class ScanOverGfsTest : public ScannedNodes {
 protected:
  ScanOverGfsTest() : ScannedNodes(4096, "mount") {}
  void SetUp() override {
    if (!bench::GfsProcess::IsPossible()) GTEST_SKIP() << "no /dev/fuse on this machine";
    gfs_ = std::make_unique<bench::GfsProcess>(
        std::vector<std::string>{rig_.gfs_path(), rig_.folder() + "/mount"});
    ASSERT_TRUE(gfs_->AwaitReady());
  }
  void TearDown() override {
    ScannedNodes::TearDown();
    daemons_.clear();
    gfs_.reset();
  }
  // A counter of the emulated GFS for one daemon.
  std::uint64_t CountOf(std::uint32_t rank, const char* counter) {
    const nlohmann::json clients = gfs_->Counters()["clients"];
    const auto client = clients.find(std::to_string(daemons_[rank]->pid()));
    return client == clients.end() ? 0 : (*client)[counter].get<std::uint64_t>();
  }
  std::uint64_t CountOfAll(const char* counter) {
    return gfs_->Counters()["total"][counter].get<std::uint64_t>();
  }
  // Starts all, with the reads of an object not answered after the first `passed` ones. Returns the
  // node that scans the object, once it waits.
  std::uint32_t StopTheScanOf(std::uint32_t file, std::uint64_t passed) {
    EXPECT_TRUE(gfs_->Control("fault hang *" + rig_.ObjectName(file) +
                              " ops=read count=0 after=" + std::to_string(passed)));
    StartAll({"--set", "stage.request=64KiB"});
    std::optional<std::uint32_t> waits;
    EXPECT_TRUE(Eventually([&] {
      for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
        if (CountOf(rank, "faults") > 0) waits = rank;
      }
      return waits.has_value();
    }));
    return waits.value_or(0);
  }
  static std::vector<std::uint32_t> AllBut(std::uint32_t rank) {
    std::vector<std::uint32_t> others;
    for (std::uint32_t other = 0; other < kNodes; ++other) {
      if (other != rank) others.push_back(other);
    }
    return others;
  }

  std::unique_ptr<bench::GfsProcess> gfs_;
};

// The last object of the data set is the last one that its node scans.
TEST_P(ScanOverGfsTest, ADaemonThatIsKilledAfterSomeOfItsPartsCostsItsShareAndNoSample) {
  const std::uint32_t lost = StopTheScanOf(kLast, /*passed=*/2);
  const std::vector<std::uint32_t> others = AllBut(lost);
  for (const std::uint32_t rank : others) {
    EXPECT_TRUE(Eventually([&] { return NodesSeenBy(rank)[lost].received_bytes() > 0; }))
        << "node " << rank << " has got parts from node " << lost;
  }
  const std::uint64_t share = CountOf(lost, "bytes");
  EXPECT_GT(share, 0U);
  daemons_[lost]->Kill();
  ASSERT_TRUE(gfs_->Control("clear"));
  ExpectExact(ReadTogether(others, 0));
  ExpectExact(ReadTogether(others, 1));
  std::uint64_t bytes = 0;
  for (const std::uint32_t rank : others) {
    AwaitStaged(*ClientOf(rank));
    bytes += GfsBytes(rank);
  }
  EXPECT_LE(bytes, rig_.file_bytes()) << "those that are left read no byte twice";
}

// Half of the object is read before it is rewritten in place, with the same size.
TEST_P(ScanOverGfsTest, AnObjectThatIsRewrittenUnderTheScanIsNeverServedAsAMixture) {
  constexpr std::uint32_t kFile = 9;
  StopTheScanOf(kFile, /*passed=*/3);
  {
    std::fstream file(PathOf(kFile), std::ios::in | std::ios::out | std::ios::binary);
    file << rig_.ObjectText(kFile, /*is_rewritten=*/true);
    ASSERT_TRUE(file.good());
  }
  ASSERT_TRUE(gfs_->Control("clear"));
  bool has_failed = false;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    has_failed = FailsByName(rank, rig_.ObjectName(kFile)) || has_failed;
  }
  AwaitCataloguedEverywhere(rig_.ObjectName(kFile));
  ExpectRewritten(ReadTogether({0, 1, 2, 3}, 0));
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    const std::string log = ReadText(rig_.node_log(rank));
    has_failed = has_failed || log.find(rig_.ObjectName(kFile)) != std::string::npos;
  }
  EXPECT_TRUE(has_failed) << "the change is reported";
}

TEST_P(ScanOverGfsTest, NobodyReadsBeforeTheLastNodeIsThere) {
  for (std::uint32_t rank = 0; rank + 1 < kNodes; ++rank) daemons_.push_back(StartNode(rank, {}));
  ASSERT_TRUE(Eventually([this] { return EntriesInRendezvous() >= kNodes - 1; }));
  EXPECT_EQ(CountOfAll("reads"), 0U);
  daemons_.push_back(StartNode(kNodes - 1, {}));
  for (const auto& daemon : daemons_) ASSERT_FALSE(daemon->ready_line().empty());
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  EXPECT_EQ(CountOfAll("bytes"), rig_.file_bytes());
  EXPECT_EQ(CountOfAll("opens"), kScannedFiles);
}

// The daemons give up at once, so their clients have to be patient. No node may keep the others
// from serving by an error that is over.
TEST_P(ScanOverGfsTest, ClientsThatTryAgainAreServedOnceTheGfsIsBack) {
  constexpr std::uint32_t kFile = 9;
  ASSERT_TRUE(gfs_->Control("fault eio *" + rig_.ObjectName(kFile) + " ops=read count=0"));
  StartAll({"--set", "stage.retry_for=0"});
  for (const std::string& error : CataloguingErrors()) {
    EXPECT_THAT(error, HasSubstr(rig_.ObjectName(kFile)));
  }
  EXPECT_GT(gfs_->InjectedCount(), 0U);
  ASSERT_TRUE(gfs_->Control("clear"));
  AwaitCataloguedEverywhere(rig_.ObjectName(kFile));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
}

INSTANTIATE_TEST_SUITE_P(Formats, ScanOverGfsTest,
                         ::testing::Values(RecordFiles::kArchives, RecordFiles::kLines), FilesName);

}  // namespace
}  // namespace forebay::integration
