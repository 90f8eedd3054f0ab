// Four daemons of one job with caps on their use of the GFS: every byte that they read counts, an
// epoch is right also after a node is lost, and nodes with other caps are refused.
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NodesCapsTest : public NodesTest {
 protected:
  // What counts for the caps of this node must be what it has read.
  void ExpectEveryByteCounts(std::uint32_t rank) {
    v1::GfsCounters gfs;
    // A read that is under way counts for the cap before it counts as read.
    EXPECT_TRUE(Eventually([&] {
      gfs = ClientOf(rank)->Status().gfs();
      return gfs.caps_size() == 3 && gfs.caps(0).used() == gfs.bytes();
    }));
    ASSERT_EQ(gfs.caps_size(), 3);
    EXPECT_EQ(gfs.caps(0).name(), "bytes");
    EXPECT_EQ(gfs.caps(0).job_rate(), 40e6);
    EXPECT_EQ(gfs.caps(0).node_rate(), 10e6);
    EXPECT_GT(gfs.caps(0).rate(), 0);
    EXPECT_GT(gfs.caps(0).waited_s(), 0) << "16 MB at 10 MB/s";
    EXPECT_EQ(gfs.caps(1).name(), "opens");
    EXPECT_GE(gfs.caps(1).used(), gfs.opens());
    EXPECT_EQ(gfs.caps(2).name(), "requests");
    EXPECT_EQ(gfs.caps(2).job_rate(), 9);
    EXPECT_EQ(gfs.caps(2).node_rate(), rank == 0 ? 3 : 2);
    EXPECT_GT(gfs.caps(2).used(), 0U);
  }
  static std::vector<std::string> Caps() {
    return {"--set", "stage.job_bytes_per_second=40MB", "--set",
            "stage.job_opens_per_second=400", "--set", "stage.job_requests=9"};
  }
};

TEST_F(NodesCapsTest, EveryByteCountsAndALostNodeCostsNoSample) {
  StartAll(Caps());
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) ExpectEveryByteCounts(rank);
  daemons_[2]->Kill();
  ExpectExact(ReadTogether({0, 1, 3}, 1));
  for (const std::uint32_t rank : {0U, 1U, 3U}) ExpectEveryByteCounts(rank);
  // Node 3 is the heir of node 2: it gets three quarters of a share of 10 MB/s.
  EXPECT_TRUE(Eventually([&] {
    return ReadText(rig_.node_log(3)).find("also uses the share of node 2") != std::string::npos;
  }));
  const v1::GfsCap bytes = ClientOf(3)->Status().gfs().caps(0);
  EXPECT_TRUE(bytes.has_inherited_from());
  EXPECT_EQ(bytes.inherited_from(), 2U);
  EXPECT_EQ(bytes.inherited(), 7.5e6);
  EXPECT_FALSE(ClientOf(0)->Status().gfs().caps(0).has_inherited_from());
  EXPECT_GT(bytes.rate() + bytes.lent() - bytes.borrowed(), 17e6);
}

TEST_F(NodesCapsTest, ANodeWithAnotherCapIsRefusedAndNamed) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    daemons_.push_back(rig_.StartNode(rank, 3, Caps()));
  }
  daemons_.push_back(rig_.StartNode(2, 3));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Outcome(rank), "1");
    EXPECT_THAT(ReadText(rig_.node_log(rank)),
                AllOf(HasSubstr("caps of the job"), HasSubstr("rank 2"), HasSubstr("none")));
  }
}

TEST_F(NodesCapsTest, FewerRequestsThanNodesAreRefused) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    daemons_.push_back(rig_.StartNode(rank, 3, {"--set", "stage.job_requests=2"}));
  }
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Outcome(rank), "1");
    EXPECT_THAT(ReadText(rig_.node_log(rank)),
                AllOf(HasSubstr("stage.job_requests is 2"), HasSubstr("raise it to 3")));
  }
}

}  // namespace
}  // namespace forebay::integration
