// Nodes agree on ownership without messages, so these tests fix values and distribution.
#include "server/plan/ownership.h"

#include <map>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::plan::ownership_test {

std::vector<Node> Nodes(std::uint32_t count) {
  std::vector<Node> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back({NodeRank(rank), 1});
  return nodes;
}

TEST(Ownership, OneNodeOwnsEverything) {
  const std::vector<Node> nodes = Nodes(1);
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(OwnerOf(7, ExtentId(i), nodes), NodeRank(0));
  }
}

TEST(Ownership, DoesNotDependOnTheOrderOfNodes) {
  std::vector<Node> nodes = Nodes(5);
  std::vector<Node> reversed(nodes.rbegin(), nodes.rend());
  for (std::uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(OwnerOf(7, ExtentId(i), nodes), OwnerOf(7, ExtentId(i), reversed));
  }
}

TEST(Ownership, SharesFollowWeightsWithinFiveStandardDeviations) {
  const std::vector<Node> nodes = {{NodeRank(0), 1}, {NodeRank(1), 3}};
  constexpr int kExtents = 40'000;
  int heavy = 0;
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    heavy += OwnerOf(42, ExtentId(i), nodes) == NodeRank(1) ? 1 : 0;
  }
  // Binomial(40000, 3/4): mean 30000, standard deviation 86.6.
  EXPECT_NEAR(heavy, 30'000, 433);
}

TEST(Ownership, LosingANodeMovesOnlyItsShare) {
  const std::vector<Node> before = Nodes(8);
  std::vector<Node> after = before;
  after.erase(after.begin() + 3);
  std::map<std::uint32_t, int> received;
  for (std::uint32_t i = 0; i < 8'000; ++i) {
    const NodeRank old_owner = OwnerOf(1, ExtentId(i), before);
    const NodeRank new_owner = OwnerOf(1, ExtentId(i), after);
    if (old_owner == NodeRank(3)) {
      ++received[new_owner.value()];
    } else {
      EXPECT_EQ(old_owner, new_owner) << "extent " << i << " moved without need";
    }
  }
  EXPECT_EQ(received.size(), 7u) << "the lost share must spread over all survivors";
}

TEST(Ownership, TheRankingBeginsWithTheOwnerAndNamesEachNodeOnce) {
  const std::vector<Node> nodes = {
      {NodeRank(0), 1}, {NodeRank(1), 3}, {NodeRank(5), 64}, {NodeRank(7), 16}};
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::vector<NodeRank> ranked = RankedOwners(9, ExtentId(i), nodes);
    EXPECT_EQ(ranked.front(), OwnerOf(9, ExtentId(i), nodes));
    EXPECT_EQ(ranked.size(), nodes.size());
    EXPECT_EQ(std::set<NodeRank>(ranked.begin(), ranked.end()).size(), nodes.size());
  }
}

TEST(Ownership, ANodeThatLeavesTheRankingMovesNoOtherPastAnother) {
  std::vector<Node> nodes = Nodes(6);
  for (std::uint32_t i = 0; i < 300; ++i) {
    std::vector<NodeRank> ranked = RankedOwners(9, ExtentId(i), nodes);
    std::vector<Node> left = nodes;
    std::erase_if(left, [](const Node& node) { return node.rank == NodeRank(2); });
    std::erase(ranked, NodeRank(2));
    EXPECT_EQ(RankedOwners(9, ExtentId(i), left), ranked);
    EXPECT_EQ(OwnerOf(9, ExtentId(i), left), ranked.front());
  }
}

std::vector<std::uint32_t> Owners(std::uint64_t dataset, std::span<const Node> nodes,
                                  std::span<const std::uint32_t> extents) {
  std::vector<std::uint32_t> owners;
  for (const std::uint32_t extent : extents) {
    owners.push_back(OwnerOf(dataset, ExtentId(extent), nodes).value());
  }
  return owners;
}

// Computed by another program from the words of ownership.h. Nodes of different versions must
// agree: a change of the function is a change of the protocol, and shows here.
TEST(Ownership, ValuesArePublished) {
  std::vector<std::uint32_t> extents(16);
  std::iota(extents.begin(), extents.end(), 0);
  EXPECT_EQ(Owners(0x123456789ABCDEFULL, Nodes(4), extents),
            (std::vector<std::uint32_t>{2, 1, 2, 3, 2, 1, 0, 0, 2, 2, 2, 3, 2, 2, 2, 1}));
}

TEST(Ownership, WeightedValuesArePublished) {
  std::vector<std::uint32_t> extents(16);
  std::iota(extents.begin(), extents.end(), 0);
  const std::vector<Node> nodes = {
      {NodeRank(0), 1}, {NodeRank(1), 3}, {NodeRank(5), 64}, {NodeRank(7), 16}};
  EXPECT_EQ(Owners(42, nodes, extents),
            (std::vector<std::uint32_t>{5, 7, 5, 7, 5, 5, 5, 7, 5, 7, 0, 5, 7, 7, 7, 5}));
  extents[14] = (1U << 24) - 1;
  extents[15] = 0xFFFF'FFFFU;
  const std::vector<Node> few = {{NodeRank(2), 1}, {NodeRank(3), 2}, {NodeRank(9), 4}};
  EXPECT_EQ(Owners(~0ULL, few, extents),
            (std::vector<std::uint32_t>{9, 9, 9, 9, 3, 9, 9, 9, 2, 9, 2, 9, 9, 9, 9, 9}));
}

TEST(Ownership, WeightsBeyondTheLimitCountAsTheLimit) {
  const std::vector<Node> limit = {{NodeRank(0), 1}, {NodeRank(1), limits::kNodeWeightMax}};
  const std::vector<Node> beyond = {{NodeRank(0), 0}, {NodeRank(1), ~0U}};
  for (std::uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(OwnerOf(7, ExtentId(i), limit), OwnerOf(7, ExtentId(i), beyond));
  }
}

}  // namespace forebay::plan::ownership_test
