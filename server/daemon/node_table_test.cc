// The places of the job, and the nodes that are in them.
#include "server/daemon/node_table.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::daemon::node_table_test {

rendezvous::NodeEntry Entry(std::uint32_t rank, const std::string& host) {
  return {.identity = {.job = "j", .host = host, .ssd_directory = "/s"},
          .place = {.job = "j", .host = "first", .ssd_directory = "/s"},
          .rank = NodeRank(rank),
          .address = {.host = "10.0.0.1", .port = 1}};
}

TEST(NodeTableTest, IsEmptyInAJobOfOneNode) {
  const NodeTable table;
  EXPECT_EQ(table.size(), 0U);
  EXPECT_TRUE(table.All().empty());
}

TEST(NodeTableTest, ANodeReplacesTheOneInItsPlaceOnly) {
  NodeTable table;
  const std::vector<rendezvous::NodeEntry> nodes = {Entry(0, "a"), Entry(1, "b"), Entry(2, "c")};
  table.Set(nodes);
  EXPECT_EQ(table.All(), nodes);
  table.Put(Entry(1, "x"));
  EXPECT_EQ(table.size(), 3U);
  EXPECT_EQ(table.At(NodeRank(1)), Entry(1, "x"));
  EXPECT_EQ(table.Name(NodeRank(1)), "x:/s (job j) (rank 1)");
  EXPECT_EQ(table.All(),
            (std::vector<rendezvous::NodeEntry>{Entry(0, "a"), Entry(1, "x"), Entry(2, "c")}));
}

}  // namespace forebay::daemon::node_table_test
