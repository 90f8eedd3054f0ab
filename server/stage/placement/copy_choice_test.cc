// Each node copies the extents of others in an order of its own, which does not change.
#include "server/stage/placement/copy_choice.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::stage {
namespace {

TEST(CopyOrderTest, HasEachRemoteExtentOnceAndIsTheSameAfterARestart) {
  std::vector<bool> remote(1000);
  for (std::size_t i = 0; i < remote.size(); ++i) remote[i] = i % 4 != 1;
  const std::vector<ExtentId> order = CopyOrder(remote, 7);
  EXPECT_EQ(order, CopyOrder(remote, 7));
  std::vector<ExtentId> sorted = order;
  std::ranges::sort(sorted, {}, &ExtentId::value);
  ASSERT_EQ(sorted.size(), 750U);
  EXPECT_NE(sorted, order);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    EXPECT_TRUE(remote[sorted[i].value()]);
    if (i > 0) {
      EXPECT_LT(sorted[i - 1].value(), sorted[i].value());
    }
  }
}

TEST(CopyOrderTest, NodesDoNotBeginWithTheSameExtents) {
  // 64 nodes, each of which copies a quarter of 1,000 extents: 16 copies of each on average.
  const std::vector<bool> remote(1000, true);
  std::vector<int> copies(remote.size());
  for (std::uint64_t node = 0; node < 64; ++node) {
    const std::vector<ExtentId> order = CopyOrder(remote, node);
    for (std::size_t i = 0; i < 250; ++i) ++copies[order[i].value()];
  }
  // Five standard deviations of a binomial distribution, 3.5 each.
  EXPECT_GE(std::ranges::min(copies), 1);
  EXPECT_LE(std::ranges::max(copies), 33);
}

TEST(CopyOrderTest, OneNodeHasNothingToCopy) { EXPECT_TRUE(CopyOrder({}, 1).empty()); }

}  // namespace
}  // namespace forebay::stage
