// Names, addresses, checks and weights of nodes.
#include "server/rendezvous/node_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "proto/contract/limits.h"

namespace forebay::rendezvous::node_entry_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NodeEntry Node(std::uint32_t rank) {
  return {.identity = {.job = "7", .host = "n" + std::to_string(rank), .ssd_directory = "/ssd"},
          .rank = NodeRank(rank),
          .address = {.host = "10.0.0." + std::to_string(rank + 1), .port = 7000},
          .capacity_bytes = 1 << 30,
          .nonce = 100 + rank,
          .agreed = {{"protocol version", "1"}, {"configuration", "9f3c"}}};
}

std::vector<NodeEntry> Nodes(std::uint32_t count) {
  std::vector<NodeEntry> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back(Node(rank));
  return nodes;
}

template <typename Matcher>
void ExpectRefused(const std::vector<NodeEntry>& nodes, const Matcher& message) {
  const Status checked = CheckNodeList(nodes, static_cast<std::uint32_t>(nodes.size()));
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(checked.error().message(), message);
}

TEST(NodeIdentity, ANodeKeepsItsIdWhateverItsRank) {
  NodeEntry before = Node(0);
  NodeEntry after = Node(3);
  after.identity = before.identity;
  EXPECT_EQ(before.identity.Id(), after.identity.Id());
  // Written to disk, so it must never change.
  EXPECT_EQ((NodeIdentity{.job = "4711", .host = "node17", .ssd_directory = "/local"}).Id(),
            0x15e8ab4fd5d555aeU);
}

TEST(NodeIdentity, EachPartOfTheNameCounts) {
  const NodeIdentity base = {.job = "1", .host = "ab", .ssd_directory = "c"};
  std::set<std::uint64_t> ids = {base.Id()};
  for (const NodeIdentity& other :
       {NodeIdentity{"2", "ab", "c"}, NodeIdentity{"1", "a", "bc"}, NodeIdentity{"1", "abc", ""},
        NodeIdentity{"1a", "b", "c"}, NodeIdentity{"", "1ab", "c"}}) {
    EXPECT_TRUE(ids.insert(other.Id()).second) << other.Text();
  }
}

TEST(NodeIdentity, ItsTextIsOneLine) {
  EXPECT_EQ((NodeIdentity{.job = "7", .host = "n1", .ssd_directory = "/ssd"}).Text(),
            "n1:/ssd (job 7)");
  EXPECT_EQ((NodeIdentity{.job = "7", .host = "n1", .ssd_directory = ""}).Text(),
            "n1:no SSD (job 7)");
  EXPECT_EQ((NodeIdentity{.job = "7", .host = "n\n", .ssd_directory = "/s"}).Text(),
            "n\\x0a:/s (job 7)");
}

TEST(HostPort, ReadsNamesAndAddresses) {
  EXPECT_EQ(*ParseHostPort("n1"), (HostPort{"n1", 0}));
  EXPECT_EQ(*ParseHostPort("n1.site:7000"), (HostPort{"n1.site", 7000}));
  EXPECT_EQ(*ParseHostPort("10.0.0.1:65535"), (HostPort{"10.0.0.1", 65535}));
  EXPECT_EQ(*ParseHostPort("fd00::1"), (HostPort{"fd00::1", 0}));
  EXPECT_EQ(*ParseHostPort("[fd00::1]:1"), (HostPort{"fd00::1", 1}));
  EXPECT_EQ(*ParseHostPort("[fd00::1]"), (HostPort{"fd00::1", 0}));
  for (const HostPort& address : {HostPort{"n1", 0}, HostPort{"n1", 7}, HostPort{"fd00::1", 0},
                                  HostPort{"fd00::1", 7}}) {
    EXPECT_EQ(*ParseHostPort(address.Text()), address);
  }
}

TEST(HostPort, RefusesOtherText) {
  for (const std::string& wrong :
       {std::string(), std::string(":7"), std::string("n1:"), std::string("n1:0"),
        std::string("n1:65536"), std::string("n1:7x"), std::string("n1:-7"), std::string("[::1"),
        std::string("[::1]7"), std::string("[]:7"), std::string("a b:7"), std::string("a/b"),
        std::string(256, 'n')}) {
    const auto parsed = ParseHostPort(wrong);
    ASSERT_FALSE(parsed.has_value()) << wrong;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(NodeList, AcceptsNodesThatAgree) {
  EXPECT_TRUE(CheckNodeList(Nodes(1), 1).has_value());
  EXPECT_TRUE(CheckNodeList(Nodes(5), 5).has_value());
}

TEST(NodeList, NamesTwoNodesThatClash) {
  auto nodes = Nodes(3);
  nodes[2].rank = NodeRank(1);
  ExpectRefused(nodes, AllOf(HasSubstr("n1:"), HasSubstr("n2:"), HasSubstr("same rank")));

  nodes = Nodes(3);
  nodes[2].identity = nodes[0].identity;
  ExpectRefused(nodes, AllOf(HasSubstr("(rank 0)"), HasSubstr("(rank 2)"),
                             HasSubstr("tier.ssd.directory")));

  nodes = Nodes(3);
  nodes[1].address = nodes[0].address;
  ExpectRefused(nodes, AllOf(HasSubstr("n0:"), HasSubstr("n1:"), HasSubstr("same address")));

  nodes = Nodes(3);
  nodes[1].identity.job = "8";
  ExpectRefused(nodes, AllOf(HasSubstr("(job 7)"), HasSubstr("(job 8)")));
}

TEST(NodeList, NamesTheValuesInWhichTwoNodesDiffer) {
  auto nodes = Nodes(3);
  nodes[2].agreed[1].value = "77\n";
  ExpectRefused(nodes, AllOf(HasSubstr("n0:"), HasSubstr("n2:"), HasSubstr("configuration"),
                             HasSubstr("'9f3c'"), HasSubstr("'77\\x0a'")));
  nodes[2].agreed = {{"protocol version", "1"}, {"catalog format", "3"}};
  ExpectRefused(nodes, AllOf(HasSubstr("'configuration'"), HasSubstr("'catalog format'")));
  nodes[2].agreed.pop_back();
  ExpectRefused(nodes, HasSubstr("two versions"));
}

TEST(NodeList, NamesRanksThatAreMissingOrTooLarge) {
  auto nodes = Nodes(3);
  const Status missing = CheckNodeList(nodes, 4);
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("missing: 3"));
  nodes[2].rank = NodeRank(3);
  ExpectRefused(nodes, HasSubstr("no rank of a job with 3 nodes"));
}

TEST(NodeList, ListsMissingRanksInShort) {
  EXPECT_EQ(MissingRanks({}, 3), "0 to 2");
  EXPECT_EQ(MissingRanks(Nodes(3), 3), "");
  const std::vector<NodeEntry> some = {Node(1), Node(2), Node(5), Node(9)};
  EXPECT_EQ(MissingRanks(some, 12), "0, 3 to 4, 6 to 8, 10 to 11");
  std::vector<NodeEntry> odd;
  for (std::uint32_t rank = 1; rank < 100; rank += 2) odd.push_back(Node(rank));
  EXPECT_EQ(MissingRanks(odd, 100), "0, 2, 4, 6, 8, 10, 12, 14, ...");
}

std::vector<std::uint32_t> WeightsOf(const std::vector<std::uint64_t>& capacities) {
  std::vector<NodeEntry> nodes = Nodes(static_cast<std::uint32_t>(capacities.size()));
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].capacity_bytes = capacities[i];
  return NodeWeights(nodes);
}

TEST(FindNode, FindsANodeByEachOfItsNames) {
  const std::vector<NodeEntry> nodes = Nodes(12);
  for (const char* name : {"11", "n11", "10.0.0.12:7000", "n11:/ssd (job 7)",
                           "n11:/ssd (job 7) (rank 11)"}) {
    const auto found = FindNode(nodes, name);
    ASSERT_TRUE(found.has_value()) << found.error().ToString();
    EXPECT_EQ(*found, NodeRank(11)) << name;
  }
}

TEST(FindNode, NamesOfNoNodeAndOfSeveralAreRefused) {
  std::vector<NodeEntry> nodes = Nodes(3);
  for (const char* name : {"3", "-1", "1 ", "n1:/ssd", "", "10.0.0.1"}) {
    const auto refused = FindNode(nodes, name);
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_EQ(refused.error().code(), ErrorCode::kNotFound);
    EXPECT_THAT(refused.error().message(), HasSubstr("status --nodes"));
  }
  nodes[2].identity.host = "n1";
  const auto refused = FindNode(nodes, "n1");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("ranks 1 and 2"));
}

TEST(NodeWeights, AreInProportionToCapacity) {
  constexpr std::uint64_t kTiB = 1ULL << 40;
  EXPECT_THAT(WeightsOf({kTiB, kTiB, kTiB}), ElementsAre(64, 64, 64));
  EXPECT_THAT(WeightsOf({kTiB, 2 * kTiB, 4 * kTiB}), ElementsAre(16, 32, 64));
  EXPECT_THAT(WeightsOf({3 * kTiB, 2 * kTiB}), ElementsAre(64, 43));
  EXPECT_THAT(WeightsOf({kTiB, kTiB / 1000, 0}), ElementsAre(64, 1, 1));
  EXPECT_THAT(WeightsOf({0, 0}), ElementsAre(1, 1));
  EXPECT_THAT(WeightsOf({1, 2, 3}), ElementsAre(1, 2, 3));
  EXPECT_THAT(WeightsOf({~0ULL, ~0ULL / 2}), ElementsAre(64, 32));
}

TEST(NodeWeights, NeverExceedTheLimit) {
  for (const std::uint64_t largest : {1ULL, 63ULL, 64ULL, 65ULL, 100ULL, 127ULL, 1000003ULL}) {
    for (const std::uint32_t weight : WeightsOf({largest, largest - 1, 1})) {
      EXPECT_GE(weight, 1U);
      EXPECT_LE(weight, limits::kNodeWeightMax);
    }
  }
}

}  // namespace forebay::rendezvous::node_entry_test
