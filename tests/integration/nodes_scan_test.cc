// Four daemons of one job and a data set without an index (tar, JSON lines): they share the scan as
// they share the reading of other data sets, so each byte comes from the GFS once for all, and the
// epoch is exact, also after one of them was killed while it scanned.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

class NodesScanTest : public NodesTest, public ::testing::WithParamInterface<RecordFiles> {
 protected:
  NodesScanTest()
      : NodesTest(RigOptions{.records = 16'384, .files = GetParam(), .ram = "24MiB"}) {}
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
                         ::testing::Values(RecordFiles::kArchives, RecordFiles::kLines),
                         [](const auto& tested) -> std::string {
                           return tested.param == RecordFiles::kArchives ? "Tar" : "JsonLines";
                         });

}  // namespace
}  // namespace forebay::integration
