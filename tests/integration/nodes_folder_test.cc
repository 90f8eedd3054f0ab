// Four daemons of one job and a data set of many small files: they share the calls to the GFS for
// sizes and times, so all of them together make as many as one daemon alone, and agree on the
// catalog.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

class NodesFolderTest : public NodesTest {
 protected:
  NodesFolderTest()
      : NodesTest(RigOptions{.records = 10'000, .files = RecordFiles::kFolder, .ram = "64MiB"}) {}

  static constexpr int kRunsMax = 4;

  // Without files of first reads, and with the SSD tier in memory, so that no node waits for a
  // disk.
  std::unique_ptr<DaemonProcess> StartNode(std::uint32_t rank,
                                           const std::vector<std::string>& more) override {
    std::vector<std::string> all = {"--set", "daemon.state_dir=", "--set",
                                    "tier.ssd.directory=" + SsdOf(rank)};
    all.insert(all.end(), more.begin(), more.end());
    return NodesTest::StartNode(rank, all);
  }
  std::string SsdOf(std::uint32_t rank) const { return rig_.node_state(rank) + "-ssd"; }

  // Whether a node had to do without another one that did not answer in time.
  bool WasLate() const {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      const std::string log = ReadText(rig_.node_log(rank));
      for (const char* line : {"has not supplied sizes", "keeps no checksums of first reads"}) {
        if (log.find(line) != std::string::npos && log.find("eadline") != std::string::npos) {
          return true;
        }
      }
    }
    return false;
  }
  void StartAfresh() {
    daemons_.clear();
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      std::filesystem::remove_all(SsdOf(rank));
      std::filesystem::remove(rig_.node_log(rank));
    }
    std::filesystem::remove_all(rig_.rendezvous_path());
    StartAll();
    AwaitStagedEverywhere();
  }
};

TEST_F(NodesFolderTest, SizesAreAskedForOnceForAllNodes) {
  StartAll();
  AwaitStagedEverywhere();
  // On a machine that builds, a daemon may stand still for so long (5 s) that the others rightly do
  // without it. They say so, and such a run proves nothing.
  for (int again = 0; again < kRunsMax && WasLate(); ++again) StartAfresh();
  ASSERT_FALSE(WasLate()) << "in " << kRunsMax << " further runs, too";
  std::uint64_t stats = 0;
  std::uint64_t opens = 0;
  std::set<std::uint64_t> fingerprints;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    const v1::StatusReply status = ClientOf(rank)->Status();
    stats += status.gfs().stats();
    opens += status.gfs().opens();
    ASSERT_EQ(status.datasets_size(), 1);
    fingerprints.insert(status.datasets(0).catalog_fingerprint());
  }
  EXPECT_EQ(opens, records_);
  EXPECT_EQ(stats, 2 * records_) << "each file is also checked once, after its read";
  EXPECT_EQ(fingerprints.size(), 1U);
}

}  // namespace
}  // namespace forebay::integration
