// Tests that links and connections to other nodes are measured, with few of them.
#include "bench/nodes/scale_links.h"

#include <gtest/gtest.h>

namespace forebay::bench {
namespace {

TEST(ScaleLinksTest, LinksAreMadeAndLookedAt) {
  const Result<LinksState> links = MeasureLinks(1'000);
  ASSERT_TRUE(links.has_value()) << links.error().ToString();
  EXPECT_GT(links->create_s, 0);
  EXPECT_GT(links->look_s, 0);
  EXPECT_LT(links->kept_bytes, 1'000U * 10'000) << "they have channels before their first call";
}

TEST(ScaleLinksTest, EachConnectionTakesTimeAndMemory) {
  const Result<ConnectionsState> connections = MeasureConnections(8);
  ASSERT_TRUE(connections.has_value()) << connections.error().ToString();
  EXPECT_GT(connections->open_s, 0);
  EXPECT_GT(connections->kept_bytes, 0U);
}

}  // namespace
}  // namespace forebay::bench
