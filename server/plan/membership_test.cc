// Membership: exactly one node reads an extent, whichever nodes are alive.
#include "server/plan/membership.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::plan::membership_test {

constexpr std::uint64_t kDataset = 7;

std::vector<Node> Nodes(std::uint32_t count) {
  std::vector<Node> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back({NodeRank(rank), 1});
  return nodes;
}

TEST(Membership, OneNodeReadsEverythingAndAsksNobody) {
  const Membership alone;
  EXPECT_TRUE(alone.is_alone());
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(alone.Reads(kDataset, ExtentId(i)));
    EXPECT_TRUE(alone.AskedBefore(kDataset, ExtentId(i)).empty());
  }
}

TEST(Membership, ExactlyOneNodeReadsAnExtent) {
  for (std::uint32_t i = 0; i < 200; ++i) {
    int readers = 0;
    for (std::uint32_t self = 0; self < 5; ++self) {
      const Membership seen(NodeRank(self), Nodes(5));
      const bool reads = seen.Reads(kDataset, ExtentId(i));
      EXPECT_EQ(reads, OwnerOf(kDataset, ExtentId(i), Nodes(5)) == NodeRank(self));
      readers += reads ? 1 : 0;
    }
    EXPECT_EQ(readers, 1);
  }
}

TEST(Membership, ANodeThatIsGoneIsNotAskedAndItsFirstSubstituteReads) {
  constexpr std::uint32_t kCount = 4;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const std::vector<NodeRank> ranked = RankedOwners(kDataset, ExtentId(i), Nodes(kCount));
    for (std::uint32_t self = 0; self < kCount; ++self) {
      Membership seen(NodeRank(self), Nodes(kCount));
      if (NodeRank(self) == ranked[0]) continue;
      seen.SetLives(ranked[0], false);
      EXPECT_EQ(seen.Reads(kDataset, ExtentId(i)), NodeRank(self) == ranked[1]);
      const std::vector<NodeRank> asked = seen.AskedBefore(kDataset, ExtentId(i));
      EXPECT_EQ(std::ranges::count(asked, ranked[0]), 0);
      seen.SetLives(ranked[0], true);
      EXPECT_EQ(seen.AskedBefore(kDataset, ExtentId(i)).front(), ranked[0]) << "it came back";
    }
  }
}

TEST(Membership, ANodeNeverThinksOfItselfAsGone) {
  Membership seen(NodeRank(1), Nodes(2));
  seen.SetLives(NodeRank(1), false);
  EXPECT_TRUE(seen.Lives(NodeRank(1)));
}

TEST(Membership, TheLastNodeThatLivesReadsEverything) {
  Membership seen(NodeRank(2), Nodes(3));
  seen.SetLives(NodeRank(0), false);
  seen.SetLives(NodeRank(1), false);
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_TRUE(seen.Reads(kDataset, ExtentId(i)));
}

}  // namespace forebay::plan::membership_test
