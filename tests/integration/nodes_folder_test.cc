// Four daemons of one job and a data set of many small files: they share the calls to the GFS for
// sizes and times, so all of them together make as many as one daemon alone, and agree on the
// catalog.
#include <cstdint>
#include <set>

#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

class NodesFolderTest : public NodesTest {
 protected:
  NodesFolderTest()
      : NodesTest(RigOptions{.records = 10'000, .files = RecordFiles::kFolder, .ram = "64MiB"}) {}
};

TEST_F(NodesFolderTest, SizesAreAskedForOnceForAllNodes) {
  // Without files of first reads. Where the disk is busy, a node may be late with them for so long
  // that the others do without it, and read its files, too.
  StartAll({"--set", "daemon.state_dir="});
  AwaitStagedEverywhere();
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
