// The counters of traffic, on data sets that are small enough to count by hand.
#include "bench/nodes/scale_traffic.h"

#include <numeric>

#include <gtest/gtest.h>

#include "bench/nodes/scale_model.h"
#include "server/plan/ownership.h"

namespace forebay::bench {
namespace {

// Four units of two samples of 10 bytes. Unit i is owned by node i % 2.
Layout OfTwoNodes() {
  Layout layout{.first_samples = {0, 2, 4, 6},
                .bytes = {20, 20, 20, 20},
                .shares = {},
                .sample_count = 8,
                .sample_bytes = 10};
  for (std::uint32_t i = 0; i < 4; ++i) layout.shares.push_back({.key = i, .owner = i % 2});
  return layout;
}

TEST(ScaleTrafficTest, ASampleBelongsToTheOwnerOfItsUnit) {
  const Layout layout = OfTwoNodes();
  std::vector<std::uint32_t> owners;
  for (std::uint64_t sample = 0; sample < 8; ++sample) owners.push_back(layout.OwnerOf(sample));
  EXPECT_EQ(owners, (std::vector<std::uint32_t>{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(layout.set_bytes(), 80U);
  EXPECT_EQ(layout.group_count(), 4U);
  EXPECT_EQ(layout.BytesOfNodes(2), (std::vector<std::uint64_t>{40, 40}));
}

TEST(ScaleTrafficTest, CountsWhatCrossesTheLinksInASequentialOrder) {
  const StepPlan plan =
      StepPlan::Create({.sample_count = 8, .global_batch = 4, .ranks = 2}).value();
  const Order order({.sample_count = 8, .shape = {.mode = OrderMode::kSequential}}, EpochId(0));
  // Step 0: rank 0 reads its own samples 0 and 1, rank 1 its own samples 2 and 3.
  const Traffic first = TrafficOf(OfTwoNodes(), order, plan, 0, 1);
  EXPECT_EQ(first.received_bytes, (std::vector<double>{0, 0}));
  EXPECT_EQ(first.askers, (std::vector<std::uint32_t>{0, 0}));
  // Ranks that are the other way round need everything from each other.
  Layout turned = OfTwoNodes();
  for (plan::GroupShare& share : turned.shares) share.owner = 1 - share.owner;
  const Traffic both = TrafficOf(turned, order, plan, 0, 2);
  EXPECT_EQ(both.received_bytes, (std::vector<double>{40, 40}));
  EXPECT_EQ(both.sent_bytes, (std::vector<double>{40, 40}));
  EXPECT_EQ(both.askers, (std::vector<std::uint32_t>{1, 1}));
  EXPECT_DOUBLE_EQ(both.mean_askers, 1);
}

TEST(ScaleTrafficTest, AnOwnerCountsEachAskerOnceAStep) {
  Layout layout = OfTwoNodes();
  for (plan::GroupShare& share : layout.shares) share.owner = 2;
  const StepPlan plan =
      StepPlan::Create({.sample_count = 8, .global_batch = 8, .ranks = 4}).value();
  const Order order({.sample_count = 8, .shape = {.mode = OrderMode::kSequential}}, EpochId(0));
  const Traffic traffic = TrafficOf(layout, order, plan, 0, 1);
  EXPECT_EQ(traffic.askers, (std::vector<std::uint32_t>{0, 0, 3, 0}));
  EXPECT_EQ(traffic.sent_bytes, (std::vector<double>{0, 0, 60, 0}));
  EXPECT_DOUBLE_EQ(traffic.mean_askers, 0.75);
}

TEST(ScaleTrafficTest, ARandomOrderHasTheTrafficThatChanceGives) {
  constexpr std::uint32_t kNodes = 16;
  const plan::Membership nodes(NodeRank(0), NodesOf(kNodes));
  const Layout layout = LayoutOfShards(1 << 20, 100, 4096, nodes);
  const StepPlan plan =
      StepPlan::Create({.sample_count = 1 << 20, .global_batch = 64 * kNodes, .ranks = kNodes})
          .value();
  const Order order({.sample_count = 1 << 20}, EpochId(0));
  const Traffic traffic = TrafficOf(layout, order, plan, 0, 200);
  const double received = std::accumulate(traffic.received_bytes.begin(),
                                          traffic.received_bytes.end(), 0.0);
  const double sent =
      std::accumulate(traffic.sent_bytes.begin(), traffic.sent_bytes.end(), 0.0);
  EXPECT_DOUBLE_EQ(received, sent);
  const double all = 200.0 * 64 * kNodes * 100;
  EXPECT_NEAR(received / all, 1 - 1.0 / kNodes, 0.005);
  EXPECT_NEAR(traffic.mean_askers, ExpectedAskers(kNodes, 64), 0.1);
}

TEST(ScaleTrafficTest, ALostShareGoesToTheNextNodesOfItsGroups) {
  const std::vector<plan::Node> nodes = NodesOf(8);
  const plan::Membership membership(NodeRank(0), nodes);
  const Layout layout = LayoutOfShards(100'000, 10, 1000, membership);
  const std::vector<std::uint32_t> lost = {2, 5};
  const Recovery recovery = RecoveryOf(layout, nodes, lost);
  const std::vector<std::uint64_t> shares = layout.BytesOfNodes(8);
  EXPECT_EQ(recovery.bytes, shares[2] + shares[5]);
  EXPECT_EQ(recovery.bytes_of_nodes[2] + recovery.bytes_of_nodes[5], 0U);
  std::vector<std::uint64_t> expected(8);
  for (std::size_t i = 0; i < layout.shares.size(); ++i) {
    if (layout.shares[i].owner != 2 && layout.shares[i].owner != 5) continue;
    for (const NodeRank node : membership.Ranked(layout.shares[i].key)) {
      if (node == NodeRank(2) || node == NodeRank(5)) continue;
      expected[node.value()] += layout.bytes[i];
      break;
    }
  }
  EXPECT_EQ(recovery.bytes_of_nodes, expected);
}

TEST(ScaleTrafficTest, NothingIsReadAgainWhenNobodyIsLost) {
  const Layout layout = OfTwoNodes();
  const Recovery recovery = RecoveryOf(layout, NodesOf(2), {});
  EXPECT_EQ(recovery.bytes, 0U);
  EXPECT_EQ(recovery.groups, 0U);
}

}  // namespace
}  // namespace forebay::bench
