// Lists of hosts: what a line may hold, and how a node finds its own line.
#include "server/rendezvous/host_list_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::rendezvous::host_list_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kList =
    "# rank  host\n"
    "node17\n"
    "\t node18.site:7001  # comment\r\n"
    "\n"
    "[fd00::19]:7000 2";

HostList Parsed(std::string_view text, std::uint16_t port = 7000) {
  auto list = HostList::Parse(text, "hosts.txt", port);
  EXPECT_TRUE(list.has_value()) << list.error().ToString();
  return std::move(*list);
}

template <typename Matcher>
void ExpectRefused(std::string_view text, const Matcher& message, std::uint16_t port = 7000) {
  const auto list = HostList::Parse(text, "hosts.txt", port);
  ASSERT_FALSE(list.has_value());
  EXPECT_THAT(list.error().message(), message);
}

template <typename Matcher>
void ExpectNoPlace(const Launch& launch, std::string_view host, const Matcher& message) {
  const auto place = Parsed(kList).Place(launch, host);
  ASSERT_FALSE(place.has_value());
  EXPECT_EQ(place.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(place.error().message(), message);
}

const NodeEntry kOwn = {
    .identity = {.job = "7", .host = "whatever", .ssd_directory = "/ssd"},
    .place = {.job = "7", .host = "whatever", .ssd_directory = "/ssd"},
    .rank = NodeRank(1),
    .address = {.host = "10.0.0.1", .port = 1},
    .capacity_bytes = 5,
    .nonce = 9,
    .agreed = {{"configuration", "9f"}}};

TEST(HostList, IsInTheOrderOfRanks) {
  const HostList list = Parsed(kList);
  EXPECT_EQ(list.node_count(), 3U);
  EXPECT_EQ(list.address(NodeRank(0)), (HostPort{"node17", 7000}));
  EXPECT_EQ(list.address(NodeRank(1)), (HostPort{"node18.site", 7001}));
  EXPECT_EQ(list.address(NodeRank(2)), (HostPort{"fd00::19", 7000}));
}

TEST(HostList, ANodeFindsItselfByItsRankOrItsName) {
  const HostList list = Parsed(kList);
  const Launch ranked = {.job = {.name = "7", .source = ""}, .rank = LaunchFact{2, "--node-rank"}};
  EXPECT_EQ(list.Place(ranked, "elsewhere")->rank, NodeRank(2));
  const Launch unknown = {.job = {.name = "7", .source = ""}};
  EXPECT_EQ(list.Place(unknown, "node17")->rank, NodeRank(0));
  EXPECT_EQ(list.Place(unknown, "node17.site")->rank, NodeRank(0));
  EXPECT_EQ(list.Place(unknown, "node18")->rank, NodeRank(1));
  EXPECT_EQ(list.Place(unknown, "node18.site")->rank, NodeRank(1));
  EXPECT_EQ(list.Place(unknown, "node18.site")->node_count, 3U);
}

TEST(HostList, ANodeThatIsNotInTheListIsTold) {
  const Launch unknown = {.job = {.name = "7", .source = ""}};
  ExpectNoPlace(unknown, "node19", AllOf(HasSubstr("hosts.txt"), HasSubstr("'node19'")));
  ExpectNoPlace(unknown, "node18.other", HasSubstr("'node18.other'"));
  const Launch high = {.job = {.name = "7", .source = ""}, .rank = LaunchFact{3, "SLURM_NODEID"}};
  ExpectNoPlace(high, "node17", HasSubstr("SLURM_NODEID=3"));
  const Launch more = {.job = {.name = "7", .source = ""},
                       .rank = std::nullopt,
                       .node_count = LaunchFact{4, "SLURM_STEP_NUM_NODES"}};
  ExpectNoPlace(more, "node17", AllOf(HasSubstr("3 hosts"), HasSubstr("SLURM_STEP_NUM_NODES=4")));
  const auto twice = Parsed("a:1\na:2\n").Place(unknown, "a");
  ASSERT_FALSE(twice.has_value());
  EXPECT_THAT(twice.error().message(), HasSubstr("lines 1 and 2"));
}

TEST(HostList, ErrorsNameTheLine) {
  ExpectRefused("a\nb:x\n", AllOf(HasSubstr("hosts.txt:2: "), HasSubstr("'b:x'")));
  ExpectRefused("a\n\nb 0\n", AllOf(HasSubstr("hosts.txt:3: "), HasSubstr("'0'")));
  ExpectRefused("a 1.5", HasSubstr("'1.5'"));
  ExpectRefused("a 1 c", HasSubstr("hosts.txt:1: "));
  ExpectRefused("a:1\nb", AllOf(HasSubstr("hosts.txt:2: "), HasSubstr("peer.ports")), 0);
  ExpectRefused("# nothing\n\n", HasSubstr("hosts.txt lists no host"));
}

TEST(HostList, EveryNodeGetsTheSameEntries) {
  HostListRendezvous rendezvous(Parsed(kList));
  const auto nodes = rendezvous.Exchange(kOwn, 3, 0);
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  NodeEntry other = kOwn;
  other.rank = NodeRank(2);
  other.address.port = 2;
  other.nonce = 10;
  other.capacity_bytes = 77;
  other.identity.host = "another";
  EXPECT_EQ(*rendezvous.Exchange(other, 3, 0), *nodes);
  EXPECT_EQ((*nodes)[1].identity,
            (NodeIdentity{.job = "7", .host = "node18.site:7001"}));
  EXPECT_EQ((*nodes)[1].place, (*nodes)[1].identity);
  EXPECT_EQ((*nodes)[1].agreed, kOwn.agreed);
  EXPECT_THAT(NodeWeights(*nodes), ElementsAre(1, 1, 2));
}

TEST(HostList, AnAddressThatIsListedTwiceIsRefused) {
  HostListRendezvous rendezvous(Parsed("a:7\nb:7\na:7\n"));
  const auto nodes = rendezvous.Exchange(kOwn, 3, 0);
  ASSERT_FALSE(nodes.has_value());
  EXPECT_THAT(nodes.error().message(), AllOf(HasSubstr("(rank 0)"), HasSubstr("(rank 2)")));
}

TEST(RendezvousChoice, ReadsItsSixForms) {
  EXPECT_EQ(ParseRendezvous("none")->kind, RendezvousKind::kNone);
  EXPECT_EQ(ParseRendezvous("pmix")->kind, RendezvousKind::kPmix);
  EXPECT_FALSE(ParseRendezvous("pmix")->hears_losses);
  EXPECT_EQ(ParseRendezvous("pmix:events")->kind, RendezvousKind::kPmix);
  EXPECT_TRUE(ParseRendezvous("pmix:events")->hears_losses);
  EXPECT_EQ(ParseRendezvous("directory:/gfs/a:b")->kind, RendezvousKind::kDirectory);
  EXPECT_EQ(ParseRendezvous("directory:/gfs/a:b")->path, "/gfs/a:b");
  EXPECT_EQ(ParseRendezvous("hosts:/etc/nodes")->kind, RendezvousKind::kHosts);
  EXPECT_EQ(ParseRendezvous("hosts:/etc/nodes")->path, "/etc/nodes");
  EXPECT_EQ(ParseRendezvous("join:n17:7000")->kind, RendezvousKind::kJoin);
  EXPECT_EQ(ParseRendezvous("join:n17:7000")->path, "n17:7000");
  EXPECT_EQ(ParseRendezvous("join:[fd00::4]:7000")->path, "[fd00::4]:7000");
  for (const char* wrong : {"", "None", "pmix:", "pmix:all", "directory", "hosts:", "hosts:nodes",
                            "file:/x", "join"}) {
    const auto choice = ParseRendezvous(wrong);
    ASSERT_FALSE(choice.has_value()) << wrong;
    EXPECT_EQ(choice.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(RendezvousChoice, TheAddressOfANodeToJoinNeedsAHostAndAPort) {
  for (const char* wrong : {"join:", "join:n17", "join:n17:", "join:n17:0", "join:n17:65536",
                            "join::7000", "join:fd00::4", "join:[fd00::4]", "join:/gfs:7000"}) {
    const auto choice = ParseRendezvous(wrong);
    ASSERT_FALSE(choice.has_value()) << wrong;
    EXPECT_EQ(choice.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(choice.error().message(), AllOf(HasSubstr(wrong), HasSubstr("join:HOST:PORT")));
  }
  EXPECT_THAT(ParseRendezvous("join:n17").error().message(), HasSubstr("the port is missing"));
}

}  // namespace forebay::rendezvous::host_list_test
