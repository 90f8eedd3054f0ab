// Tests what BalancedShares promises: no node has much more than its share, every node computes the
// same shares, and groups stay in place when the nodes change.
#include "server/plan/shares.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::plan::shares_test {

std::vector<Node> NodesOf(std::uint32_t count) {
  std::vector<Node> nodes;
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes.push_back({.rank = NodeRank(i), .weight = 1, .identity = 1000 + i});
  }
  return nodes;
}

std::vector<GroupSize> GroupsOf(std::uint32_t count, std::uint64_t bytes_max) {
  std::mt19937_64 random(7);
  std::vector<GroupSize> groups;
  for (std::uint32_t i = 0; i < count; ++i) {
    groups.push_back({.key = GroupKey(42, i), .bytes = 1 + random() % bytes_max});
  }
  return groups;
}

std::vector<std::size_t> OwnersOf(std::span<const Node> nodes, std::span<const GroupSize> groups) {
  const OwnerTree tree(nodes);
  std::vector<std::size_t> owners;
  for (const GroupShare& share : BalancedShares(tree, nodes, groups)) {
    EXPECT_EQ(share.owner, tree.OwnerOf(share.key));
    owners.push_back(share.owner);
  }
  return owners;
}

std::vector<std::uint64_t> BytesOf(std::span<const Node> nodes,
                                   std::span<const GroupSize> groups) {
  const std::vector<std::size_t> owners = OwnersOf(nodes, groups);
  std::vector<std::uint64_t> bytes(nodes.size());
  for (std::size_t i = 0; i < groups.size(); ++i) bytes[owners[i]] += groups[i].bytes;
  return bytes;
}

TEST(BalancedSharesTest, NoNodeHasMuchMoreThanItsShare) {
  for (const std::uint32_t count : {1U, 2U, 3U, 4U, 16U, 100U}) {
    const std::vector<Node> nodes = NodesOf(count);
    for (const std::uint32_t group_count : {1U, 7U, 64U, 4096U}) {
      const std::vector<GroupSize> groups = GroupsOf(group_count, 1000);
      const std::vector<std::uint64_t> bytes = BytesOf(nodes, groups);
      const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
      const std::uint64_t share = total / count + 1;
      EXPECT_LE(std::ranges::max(bytes), share + share / 32 + 1000)
          << group_count << " groups on " << count << " nodes";
    }
  }
}

TEST(BalancedSharesTest, SharesFollowTheWeights) {
  std::vector<Node> nodes = NodesOf(4);
  nodes[0].weight = 5;
  const std::vector<std::uint64_t> bytes = BytesOf(nodes, GroupsOf(8192, 1000));
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(bytes[0]) / static_cast<double>(bytes[i]), 5.0, 0.6);
  }
}

TEST(BalancedSharesTest, TheOrderOfTheGroupsDoesNotMatter) {
  const std::vector<Node> nodes = NodesOf(5);
  const OwnerTree tree(nodes);
  std::vector<GroupSize> groups = GroupsOf(300, 1000);
  std::vector<GroupShare> shares = BalancedShares(tree, nodes, groups);
  std::ranges::reverse(groups);
  std::ranges::reverse(shares);
  EXPECT_EQ(BalancedShares(tree, nodes, groups), shares);
}

TEST(BalancedSharesTest, AGroupMayKeepItsKeyAndOthersMakeRoomForIt) {
  const std::vector<Node> nodes = NodesOf(4);
  const OwnerTree tree(nodes);
  std::vector<GroupSize> groups = GroupsOf(4096, 1000);
  // All groups of one node keep their keys; they are about a quarter, which this makes a half.
  for (GroupSize& group : groups) {
    group.keeps_key = tree.OwnerOf(group.key) == 0;
    if (group.keeps_key) group.bytes *= 3;
  }
  const std::vector<GroupShare> shares = BalancedShares(tree, nodes, groups);
  std::vector<std::uint64_t> bytes(4);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    EXPECT_TRUE(!groups[i].keeps_key || shares[i].key == groups[i].key);
    EXPECT_EQ(shares[i].owner, tree.OwnerOf(shares[i].key));
    bytes[shares[i].owner] += groups[i].bytes;
  }
  EXPECT_GT(bytes[0], bytes[1] * 2) << "the case that is meant";
  for (std::size_t i = 2; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(bytes[i]) / static_cast<double>(bytes[1]), 1.0, 0.2);
  }
}

TEST(BalancedSharesTest, GroupsWithoutBytesAndNoGroupsAtAll) {
  const std::vector<Node> nodes = NodesOf(3);
  const OwnerTree tree(nodes);
  EXPECT_TRUE(BalancedShares(tree, nodes, {}).empty());
  const std::vector<GroupSize> empty = {{.key = 1}, {.key = 2}};
  const std::vector<GroupShare> shares = BalancedShares(tree, nodes, empty);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].key, 1U);
  EXPECT_EQ(shares[1].key, 2U);
}

// Nodes of different versions must agree: a change of a key is a change of the protocol.
TEST(BalancedSharesTest, KeysArePublished) {
  const std::vector<Node> nodes = NodesOf(2);
  std::vector<GroupSize> groups;
  for (std::uint64_t i = 0; i < 64; ++i) groups.push_back({.key = GroupKey(1, i), .bytes = 10});
  std::uint64_t sum = 0;
  for (const GroupShare& share : BalancedShares(OwnerTree(nodes), nodes, groups)) {
    sum += share.key;
  }
  EXPECT_EQ(sum, 2078690806255764114U);
}

TEST(BalancedSharesTest, ANodeThatGoesLeavesMostGroupsInPlace) {
  const std::vector<Node> nodes = NodesOf(16);
  const std::vector<GroupSize> groups = GroupsOf(16 * 256, 1000);
  const std::vector<std::size_t> before = OwnersOf(nodes, groups);
  const std::vector<Node> fewer(nodes.begin(), nodes.end() - 1);
  const std::vector<std::size_t> after = OwnersOf(fewer, groups);
  std::size_t moved = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) moved += before[i] != after[i] ? 1 : 0;
  // A sixteenth has to move; what else moves makes room for it.
  EXPECT_GE(moved, groups.size() / 20);
  EXPECT_LE(moved, groups.size() / 5);
}

}  // namespace forebay::plan::shares_test
