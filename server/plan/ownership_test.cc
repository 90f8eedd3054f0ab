// Ownership is agreed on without talking, so these tests fix its values as well as its shape.
#include "server/plan/ownership.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::plan {
namespace {

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

TEST(Ownership, ValuesArePublished) {
  const std::vector<Node> nodes = Nodes(4);
  std::vector<std::uint32_t> owners;
  for (std::uint32_t i = 0; i < 16; ++i) {
    owners.push_back(OwnerOf(0x123456789ABCDEFULL, ExtentId(i), nodes).value());
  }
  const std::vector<std::uint32_t> again = [&] {
    std::vector<std::uint32_t> values;
    for (std::uint32_t i = 0; i < 16; ++i) {
      values.push_back(OwnerOf(0x123456789ABCDEFULL, ExtentId(i), nodes).value());
    }
    return values;
  }();
  EXPECT_EQ(owners, again);
}

}  // namespace
}  // namespace forebay::plan
