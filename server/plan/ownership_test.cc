// Nodes agree on ownership without messages, so these tests fix values and distribution.
#include "server/plan/ownership.h"

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"

namespace forebay::plan::ownership_test {

std::vector<Node> Nodes(std::uint32_t count) {
  std::vector<Node> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back({NodeRank(rank), 1});
  return nodes;
}

// Nodes as they are named in a job: 64-bit hashes, of different capacities.
std::vector<Node> NamedNodes(std::uint32_t count) {
  std::vector<Node> nodes = Nodes(count);
  std::uint64_t state = 42;
  for (Node& node : nodes) {
    node.identity = NextWord64(state);
    node.weight = 16 + 16 * (node.rank.value() % 4);
  }
  return nodes;
}

std::vector<NodeRank> Ranked(std::span<const Node> nodes, std::uint64_t key) {
  const OwnerTree tree(nodes);
  OwnerTree::Ranking ranking = tree.RankingOf(key);
  std::vector<NodeRank> ranked;
  while (const auto next = ranking.Next()) ranked.push_back(nodes[*next].rank);
  return ranked;
}

TEST(Ownership, OneNodeOwnsEverything) {
  const std::vector<Node> nodes = Nodes(1);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(Ranked(nodes, GroupKey(7, i)), std::vector<NodeRank>{NodeRank(0)});
  }
}

TEST(Ownership, DependsOnIdentitiesAndNotOnRanksOrTheOrderOfNodes) {
  const std::vector<Node> nodes = NamedNodes(50);
  std::vector<Node> renumbered(nodes.rbegin(), nodes.rend());
  for (std::uint32_t i = 0; i < 50; ++i) renumbered[i].rank = NodeRank(i);
  const OwnerTree tree(nodes), other(renumbered);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t key = GroupKey(7, i);
    EXPECT_EQ(nodes[tree.OwnerOf(key)].identity, renumbered[other.OwnerOf(key)].identity);
  }
}

// Chi-squared over all nodes: mean count - 1, standard deviation sqrt(2 (count - 1)).
TEST(Ownership, SharesFollowWeightsWithinFiveStandardDeviations) {
  for (const std::uint32_t count : {2U, 5U, 64U, 1000U}) {
    const std::vector<Node> nodes = NamedNodes(count);
    const OwnerTree tree(nodes);
    std::vector<double> owned(count), taken_over(count);
    const std::uint64_t groups = 400 * count;
    double weights = 0;
    for (const Node& node : nodes) weights += node.weight;
    for (std::uint64_t i = 0; i < groups; ++i) {
      OwnerTree::Ranking ranking = tree.RankingOf(GroupKey(42, i));
      ++owned[ranking.Next().value()];
      ++taken_over[ranking.Next().value()];
    }
    double chi_squared = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const double expected = static_cast<double>(groups) * nodes[i].weight / weights;
      chi_squared += (owned[i] - expected) * (owned[i] - expected) / expected;
      // Second places are not proportional, because no node follows itself; but no node lacks them.
      EXPECT_GT(taken_over[i], expected / 4) << i << " of " << count;
    }
    EXPECT_LT(std::abs(chi_squared - (count - 1)), 5 * std::sqrt(2.0 * (count - 1))) << count;
  }
}

TEST(Ownership, ALightNodeGetsItsShareBesideHeavyOnes) {
  const std::vector<Node> nodes = {{NodeRank(0), 1}, {NodeRank(1), 64}, {NodeRank(2), 64}};
  const OwnerTree tree(nodes);
  constexpr int kGroups = 258'000;
  int light = 0;
  for (int i = 0; i < kGroups; ++i) {
    light += tree.OwnerOf(GroupKey(1, static_cast<std::uint64_t>(i))) == 0 ? 1 : 0;
  }
  // Binomial(258000, 1/129): mean 2000, standard deviation 44.5.
  EXPECT_NEAR(light, 2000, 223);
}

// The inverse of Mix64, so that a test can choose the hashes of identities.
std::uint64_t Unmix64(std::uint64_t z) {
  z ^= z >> 31 ^ z >> 62;
  z *= 0x319642B2D24D8EC3ULL;
  z ^= z >> 27 ^ z >> 54;
  z *= 0x96DE1B173F119089ULL;
  return z ^ z >> 30 ^ z >> 60;
}

TEST(Ownership, NodesWhoseHashesDifferInOneBitGetEqualShares) {
  for (int bit = 0; bit < 64; ++bit) {
    std::vector<Node> nodes = Nodes(2);
    nodes[0].identity = Unmix64(0x0123456789ABCDEFULL) - kGolden64;
    nodes[1].identity = Unmix64(0x0123456789ABCDEFULL ^ 1ULL << bit) - kGolden64;
    const OwnerTree tree(nodes);
    int first = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) first += tree.OwnerOf(GroupKey(7, i)) == 0 ? 1 : 0;
    // Binomial(1000, 1/2): standard deviation 15.8.
    EXPECT_NEAR(first, 500, 80) << "bit " << bit;
  }
}

TEST(Ownership, TheRankingBeginsWithTheOwnerAndNamesEachNodeOnce) {
  for (const std::uint32_t count : {4U, 40U, 300U}) {
    const std::vector<Node> nodes = NamedNodes(count);
    const OwnerTree tree(nodes);
    for (std::uint64_t i = 0; i < 100; ++i) {
      const std::vector<NodeRank> ranked = Ranked(nodes, GroupKey(9, i));
      EXPECT_EQ(ranked.front(), nodes[tree.OwnerOf(GroupKey(9, i))].rank);
      EXPECT_EQ(ranked.size(), count);
      EXPECT_EQ(std::set<NodeRank>(ranked.begin(), ranked.end()).size(), count);
    }
  }
}

// The next job of a user has one node less. Within a job the ranking does not change at all: dead
// nodes are passed over (Membership).
TEST(Ownership, ANodeThatIsMissingInTheNextJobMovesItsShareAndLittleElse) {
  for (const std::uint32_t count : {8U, 64U, 512U}) {
    const std::vector<Node> before = NamedNodes(count);
    std::vector<Node> after = before;
    after.erase(after.begin() + 3);
    const OwnerTree tree(before), smaller(after);
    double moved = 0, share = 0;
    std::map<std::uint32_t, int> received;
    for (std::uint64_t i = 0; i < 200 * count; ++i) {
      const NodeRank old_owner = before[tree.OwnerOf(GroupKey(1, i))].rank;
      const NodeRank new_owner = after[smaller.OwnerOf(GroupKey(1, i))].rank;
      share += old_owner == NodeRank(3) ? 1 : 0;
      moved += old_owner == new_owner ? 0 : 1;
      if (old_owner != new_owner) ++received[new_owner.value()];
    }
    EXPECT_GE(moved, share);
    EXPECT_LT(moved, 4 * share) << count << " nodes";
    EXPECT_GT(received.size(), std::min(count / 2, 60U)) << "many nodes share it";
  }
}

// Computed by another program from the words of ownership.cc. Nodes of different versions must
// agree: a change of the function is a change of the protocol, and shows here.
TEST(Ownership, ValuesArePublished) {
  const OwnerTree four(Nodes(4));
  std::vector<std::size_t> owners;
  for (std::uint64_t i = 0; i < 16; ++i) {
    owners.push_back(four.OwnerOf(GroupKey(0x123456789ABCDEFULL, i)));
  }
  EXPECT_EQ(owners, (std::vector<std::size_t>{1, 3, 3, 3, 3, 2, 3, 3, 3, 1, 3, 3, 3, 2, 0, 0}));

  const OwnerTree fifty(NamedNodes(50));
  const std::vector<std::uint64_t> groups = {0, 1, 2, 3, 4,  5,  6,
                                             7, 8, 9, 10, 11, (1ULL << 40) - 1, ~0ULL};
  std::vector<std::size_t> first, second;
  for (const std::uint64_t group : groups) {
    OwnerTree::Ranking ranking = fifty.RankingOf(GroupKey(42, group));
    first.push_back(ranking.Next().value());
    second.push_back(ranking.Next().value());
  }
  EXPECT_EQ(first, (std::vector<std::size_t>{0, 7, 7, 21, 3, 36, 5, 15, 35, 46, 11, 12, 31, 43}));
  // Groups 5 and 10 draw the same node twice, so their second place is the third draw.
  EXPECT_EQ(second,
            (std::vector<std::size_t>{1, 49, 45, 25, 19, 6, 30, 22, 9, 15, 2, 43, 15, 23}));
}

TEST(Ownership, WeightsBeyondTheLimitCountAsTheLimit) {
  const std::vector<Node> limit = {{NodeRank(0), 1}, {NodeRank(1), limits::kNodeWeightMax}};
  const std::vector<Node> beyond = {{NodeRank(0), 0}, {NodeRank(1), ~0U}};
  const OwnerTree a(limit), b(beyond);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.OwnerOf(GroupKey(7, i)), b.OwnerOf(GroupKey(7, i)));
  }
}

}  // namespace forebay::plan::ownership_test
