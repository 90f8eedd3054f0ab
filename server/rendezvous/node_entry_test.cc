// Names, addresses, checks and weights of nodes.
#include "server/rendezvous/node_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/rendezvous/node_file.h"

namespace forebay::rendezvous::node_entry_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NodeEntry Node(std::uint32_t rank) {
  const NodeIdentity identity = {
      .job = "7", .host = "n" + std::to_string(rank), .ssd_directory = "/ssd"};
  return {.identity = identity,
          .place = identity,
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

// A job of three nodes and one free place, rank 3.
std::vector<NodeEntry> WithOneFree() { return *WithFreePlaces(Nodes(3), 1); }

template <typename Matcher>
void ExpectFailed(const Status& checked, const Matcher& message) {
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(checked.error().message(), message);
}

template <typename Matcher>
void ExpectRefused(const std::vector<NodeEntry>& nodes, const Matcher& message) {
  ExpectFailed(CheckNodeList(nodes, static_cast<std::uint32_t>(nodes.size())), message);
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

TEST(HostPort, FindsTheAddressOfAHost) {
  EXPECT_TRUE(IsNumericHost("10.0.0.1"));
  EXPECT_TRUE(IsNumericHost("fd00::1"));
  EXPECT_FALSE(IsNumericHost("localhost"));
  EXPECT_EQ(*NumericHost("10.0.0.1", "10.0.0.2"), "10.0.0.1");
  EXPECT_EQ(*NumericHost("fd00:0::1", "fd00::2"), "fd00::1");
  EXPECT_EQ(*NumericHost("10.0.0.1", "fd00::2"), "10.0.0.1") << "it has no address of this family";
  EXPECT_EQ(*NumericHost("localhost", "10.0.0.2"), "127.0.0.1");
  // A part of a name has 63 characters at most, so nobody is asked for this one.
  const auto unknown = NumericHost(std::string(64, 'n'), "10.0.0.2");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message(), HasSubstr("nnn' has no address: "));
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

  nodes = Nodes(3);
  nodes[2].place = nodes[1].place;
  ExpectRefused(nodes, AllOf(HasSubstr("n1:"), HasSubstr("n2:"), HasSubstr("same place")));
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

TEST(FindNode, AFreePlaceHasARankAndNoAddress) {
  const std::vector<NodeEntry> nodes = WithOneFree();
  EXPECT_EQ(FindNode(nodes, "3"), NodeRank(3));
  EXPECT_EQ(FindNode(nodes, nodes[3].address.Text()).error().code(), ErrorCode::kNotFound);
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

TEST(FreePlaces, AreTheSameOnAllNodesAndSmallerThanNone) {
  std::vector<NodeEntry> nodes = Nodes(3);
  nodes[1].capacity_bytes -= 5;
  const auto places = WithFreePlaces(nodes, 2);
  ASSERT_TRUE(places.has_value()) << places.error().ToString();
  ASSERT_EQ(places->size(), 5U);
  EXPECT_EQ(*WithFreePlaces(nodes, 2), *places);
  FOREBAY_EXPECT_OK(CheckNodeList(*places, 5));
  std::set<std::uint64_t> nonces;
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    const NodeEntry& place = (*places)[rank];
    nonces.insert(place.nonce);
    EXPECT_EQ(place.rank, NodeRank(rank));
    EXPECT_EQ(place.is_free(), rank >= 3);
    if (!place.is_free()) continue;
    EXPECT_EQ(place.capacity_bytes, nodes[1].capacity_bytes);
    EXPECT_EQ(place.agreed, nodes[0].agreed);
    EXPECT_EQ(place.place, place.identity);
    EXPECT_FALSE(IsHostName(place.place.host)) << "a host could have this name";
  }
  EXPECT_EQ(nonces.size(), 5U);
  EXPECT_EQ(*WithFreePlaces(nodes, 0), nodes);
  // A place of rank 3 is another one in another launch.
  nodes[0].nonce += 1;
  EXPECT_NE((*WithFreePlaces(nodes, 1))[3].nonce, (*places)[3].nonce);
}

TEST(FreePlaces, AreReadFromANodeFileAsTheyWereWritten) {
  const NodeFile file = {.kind = NodeFileKind::kComplete, .node_count = 4, .nodes = WithOneFree()};
  const auto read = Decode(Encode(file));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(*read, file);
}

TEST(FreePlaces, MoreThanAJobMayHaveAreRefused) {
  const auto most = WithFreePlaces(Nodes(2), limits::kNodeCountMax - 2);
  ASSERT_TRUE(most.has_value()) << most.error().ToString();
  EXPECT_EQ(most->size(), limits::kNodeCountMax);
  for (const std::uint32_t count : {limits::kNodeCountMax - 1, ~0U}) {
    const auto refused = WithFreePlaces(Nodes(2), count);
    ASSERT_FALSE(refused.has_value()) << count;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr("kNodeCountMax (65536)"));
  }
}

TEST(TakePlace, ANodeTakesAFreePlaceOrThatOfALostOne) {
  for (const std::size_t rank : {1U, 3U}) {
    std::vector<NodeEntry> nodes = WithOneFree();
    const NodeEntry taken = TakePlace(nodes[rank], Node(9));
    EXPECT_EQ(taken.identity, Node(9).identity);
    EXPECT_EQ(taken.address, Node(9).address);
    EXPECT_EQ(taken.place, nodes[rank].place);
    EXPECT_EQ(taken.rank, nodes[rank].rank);
    EXPECT_EQ(taken.nonce, nodes[rank].nonce);
    FOREBAY_EXPECT_OK(CheckMayTake(nodes, taken));
    const std::uint64_t digest = NodeListDigest(nodes);
    nodes[rank] = taken;
    FOREBAY_EXPECT_OK(CheckNodeList(nodes, 4));
    EXPECT_EQ(NodeListDigest(nodes), digest);
    // It says so again.
    FOREBAY_EXPECT_OK(CheckMayTake(nodes, taken));
  }
}

TEST(TakePlace, AnEntryThatIsNotOfAPlaceOfTheJobIsRefused) {
  const std::vector<NodeEntry> nodes = WithOneFree();
  const NodeEntry good = TakePlace(nodes[3], Node(9));
  const auto check = [&](const std::function<void(NodeEntry&)>& change) {
    NodeEntry taken = good;
    change(taken);
    return CheckMayTake(nodes, taken);
  };
  ExpectFailed(check([](NodeEntry& taken) { taken.rank = NodeRank(4); }),
               AllOf(HasSubstr("n9:"), HasSubstr("4 places")));
  ExpectFailed(check([](NodeEntry& taken) { taken.identity.job = "8"; }),
               AllOf(HasSubstr("place 3:"), HasSubstr("n9:"), HasSubstr("different jobs")));
  ExpectFailed(check([](NodeEntry& taken) { taken.address = {.host = "0.0.0.0"}; }),
               AllOf(HasSubstr("n9:"), HasSubstr("without an address")));
  const std::function<void(NodeEntry&)> of_another_list[] = {
      [](NodeEntry& taken) { taken.rank = NodeRank(2); },
      [](NodeEntry& taken) { taken.place.host = "n9"; },
      [](NodeEntry& taken) { taken.capacity_bytes += 1; },
      [](NodeEntry& taken) { taken.nonce += 1; },
      [](NodeEntry& taken) { taken.agreed[1].value = "9f3d"; },
  };
  for (const auto& change : of_another_list) {
    ExpectFailed(check(change), AllOf(HasSubstr("n9:"), HasSubstr("two launches")));
  }
}

TEST(TakePlace, ANodeThatIsInAnotherPlaceIsRefusedByName) {
  const std::vector<NodeEntry> nodes = WithOneFree();
  NodeEntry node = Node(9);
  node.identity = Node(1).identity;
  ExpectFailed(CheckMayTake(nodes, TakePlace(nodes[3], node)),
               AllOf(HasSubstr("(rank 1)"), HasSubstr("(rank 3)"), HasSubstr("same node")));
  node = Node(9);
  node.address = Node(2).address;
  ExpectFailed(CheckMayTake(nodes, TakePlace(nodes[3], node)),
               AllOf(HasSubstr("(rank 2)"), HasSubstr("n9:"), HasSubstr("same address")));
  // A node that was lost comes back to its own place, where another one may be by now.
  FOREBAY_EXPECT_OK(CheckMayTake(nodes, TakePlace(nodes[1], Node(1))));
}

TEST(TakePlace, ANodeNeedsNearlyTheCapacityOfThePlace) {
  const NodeEntry place = WithOneFree()[3];
  NodeEntry node = Node(9);
  for (const std::uint64_t bytes : {1ULL << 30, 31ULL << 25, ~0ULL}) {
    node.capacity_bytes = bytes;
    FOREBAY_EXPECT_OK(CheckRoom(place, node));
  }
  node.capacity_bytes = (31ULL << 25) - 1;
  ExpectFailed(CheckRoom(place, node),
               AllOf(HasSubstr("n9:"), HasSubstr("1040187391 bytes"), HasSubstr("place 3:"),
                     HasSubstr("1073741824 bytes"), HasSubstr("tier.ssd.capacity")));
  node.capacity_bytes = 0;
  NodeEntry without_tiers = place;
  without_tiers.capacity_bytes = 0;
  FOREBAY_EXPECT_OK(CheckRoom(without_tiers, node));
}

TEST(TakePlace, ANodeMustAgreeWithTheJob) {
  const NodeEntry place = WithOneFree()[3];
  NodeEntry node = Node(9);
  node.agreed[1].value = "77aa";
  ExpectFailed(CheckRoom(place, node),
               AllOf(HasSubstr("place 3:"), HasSubstr("n9:"), HasSubstr("configuration"),
                     HasSubstr("'9f3c'"), HasSubstr("'77aa'")));
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
