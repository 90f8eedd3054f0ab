// The arithmetic of the model, on cases whose results are known without it.
#include "bench/nodes/scale_model.h"

#include <gtest/gtest.h>

namespace forebay::bench {
namespace {

constexpr Machine kPlain = {.name = "plain",
                            .link_bytes_per_s = 1e9,
                            .tier_bytes = 100,
                            .gfs_bytes_per_s = 1e9,
                            .gfs_node_bytes_per_s = 1e8,
                            .gfs_opens_per_s = 10,
                            .source = ""};

TEST(ScaleModelTest, ALinkMovesBothWaysAtTheSameTime) {
  const double payload_per_s = 1e9 * kPayloadOfLink;
  EXPECT_DOUBLE_EQ(LinkSeconds(payload_per_s, 0, 1e9), 1);
  EXPECT_DOUBLE_EQ(LinkSeconds(payload_per_s, 3 * payload_per_s, 1e9), 3);
  EXPECT_DOUBLE_EQ(LinkSeconds(0, 0, 1e9), 0);
}

TEST(ScaleModelTest, NobodyWaitsForALinkThatIsFastEnough) {
  EXPECT_DOUBLE_EQ(StallShare(1, 0.5), 0);
  EXPECT_DOUBLE_EQ(StallShare(1, 1), 0);
  EXPECT_DOUBLE_EQ(StallShare(1, 4), 0.75);
  EXPECT_DOUBLE_EQ(StallShare(0, 0), 0) << "nothing to do";
  EXPECT_DOUBLE_EQ(WindowSeconds(1, 4), 4);
}

TEST(ScaleModelTest, AskersOfAnOwner) {
  EXPECT_DOUBLE_EQ(ExpectedAskers(1, 64), 0) << "there is no other node";
  EXPECT_DOUBLE_EQ(ExpectedAskers(2, 1), 0.5);
  // A batch of very many samples has some of each owner.
  EXPECT_NEAR(ExpectedAskers(4, 1000), 3, 1e-9);
  // In a large job nearly each sample of a batch has another owner.
  EXPECT_NEAR(ExpectedAskers(16'384, 64), 64, 0.2);
}

TEST(ScaleModelTest, TheSlowestOfThreeLimitsDecidesHowLongTheGfsTakes) {
  EXPECT_DOUBLE_EQ(GfsSeconds(4e9, 1e8, 1, kPlain), 4) << "the rate of the GFS";
  EXPECT_DOUBLE_EQ(GfsSeconds(1e9, 5e8, 1, kPlain), 5) << "the node with most bytes";
  EXPECT_DOUBLE_EQ(GfsSeconds(1e9, 1e8, 70, kPlain), 7) << "opens";
}

TEST(ScaleModelTest, LaterEpochsReadWhatIsOnNoTier) {
  EXPECT_DOUBLE_EQ(EpochGfsBytes(1000, 10, kPlain), 0);
  EXPECT_DOUBLE_EQ(EpochGfsBytes(1000, 4, kPlain), 600);
}

TEST(ScaleModelTest, ASampleOfAllHasNoError) {
  EXPECT_DOUBLE_EQ(StandardError(2, 10, 10), 0);
  EXPECT_NEAR(StandardError(2, 4, 1e12), 1, 1e-9);
  EXPECT_DOUBLE_EQ(StandardError(2, 1, 4), 2 * 0.8660254037844386);
}

TEST(ScaleModelTest, EachMachineHasANameAllFiguresAndASource) {
  for (const Machine& machine : kMachines) {
    EXPECT_EQ(FindMachine(machine.name), &machine) << "the name is another machine's";
    EXPECT_GT(machine.link_bytes_per_s, 0);
    EXPECT_GT(machine.tier_bytes, 0);
    EXPECT_GT(machine.gfs_node_bytes_per_s, 0);
    EXPECT_GT(machine.gfs_opens_per_s, 0);
    EXPECT_GE(machine.gfs_bytes_per_s, machine.gfs_node_bytes_per_s);
    EXPECT_FALSE(machine.source.empty());
  }
  EXPECT_EQ(FindMachine("none"), nullptr);
}

}  // namespace
}  // namespace forebay::bench
