// The list of nodes that a daemon leaves behind when it is killed: only a daemon of the same node
// and the same launch finds it.
#include "server/rendezvous/kept_list.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::rendezvous::kept_list_test {

std::vector<NodeEntry> Nodes() {
  std::vector<NodeEntry> nodes;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const NodeIdentity identity = {
        .job = "4711", .host = "n" + std::to_string(rank), .ssd_directory = "/ssd"};
    nodes.push_back({.identity = identity,
                     .place = identity,
                     .rank = NodeRank(rank),
                     .address = {.host = "10.0.0.1", .port = static_cast<std::uint16_t>(rank + 1)},
                     .capacity_bytes = 1 << 30,
                     .nonce = rank + 100,
                     .agreed = {{"configuration", "a"}}});
  }
  return nodes;
}

class KeptListTest : public testing::Test {
 protected:
  void SetUp() override { FOREBAY_EXPECT_OK(backend_.AddDirectory("/run")); }
  KeptList Open() {
    auto opened = KeptList::Open(backend_, "/run");
    EXPECT_TRUE(opened.has_value()) << opened.error().ToString();
    return std::move(*opened);
  }
  // The node that is started again: it does not know its address yet, and draws another nonce.
  static NodeEntry Own() {
    NodeEntry own = Nodes()[1];
    own.address = {};
    own.nonce = 7;
    return own;
  }

  io::MemoryBackend backend_;
};

TEST_F(KeptListTest, IsFoundByTheNextDaemonOfTheNode) {
  EXPECT_FALSE(Open().Find(Own(), 3).has_value()) << "there is none";
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));  // it replaces what is there
  const auto found = Open().Find(Own(), 3);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, Nodes());
  Open().Remove();
  EXPECT_FALSE(Open().Find(Own(), 3).has_value());
  Open().Remove();  // there is nothing to remove any more
}

TEST_F(KeptListTest, ADepartureIsFoundUntilTheDaemonEndsOrAnotherLaunchBegins) {
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  EXPECT_FALSE(Open().FindDeparture().has_value());
  FOREBAY_EXPECT_OK(Open().KeepDeparture(300'000));
  EXPECT_EQ(Open().FindDeparture(), 300'000);
  FOREBAY_EXPECT_OK(Open().KeepDeparture(1));  // it replaces what is there
  EXPECT_EQ(Open().FindDeparture(), 1);
  EXPECT_TRUE(Open().Find(Own(), 3).has_value());
  std::vector<NodeEntry> changed = Nodes();
  changed[2].address.port = 9;
  FOREBAY_EXPECT_OK(Open().Update(changed));
  EXPECT_EQ(Open().Find(Own(), 3), changed);
  EXPECT_EQ(Open().FindDeparture(), 1) << "the list is of the same launch";
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  EXPECT_FALSE(Open().FindDeparture().has_value()) << "the list is of another launch";
  FOREBAY_EXPECT_OK(Open().KeepDeparture(limits::kLeaveMsMax));
  EXPECT_EQ(Open().FindDeparture(), limits::kLeaveMsMax);
  Open().Remove();
  EXPECT_FALSE(Open().FindDeparture().has_value());
}

TEST_F(KeptListTest, ADepartureThatIsNoTimeIsNotUsed) {
  auto directory = backend_.OpenDirectory("/run");
  ASSERT_TRUE(directory.has_value());
  for (const std::string text :
       {"", "x", "-1", "0", "12x", "86400001", "99999999999999999999999"}) {
    FOREBAY_EXPECT_OK(Open().KeepDeparture(1));
    FOREBAY_EXPECT_OK((*directory)->Unlink("forebayd.leaves"));
    FOREBAY_EXPECT_OK(backend_.AddFile("/run/forebayd.leaves", std::as_bytes(std::span(text))));
    EXPECT_FALSE(Open().FindDeparture().has_value()) << text;
  }
}

TEST_F(KeptListTest, TheAddressOfTheNodeBeforeIsFoundUntilItIsToldOrTheDaemonEnds) {
  const std::string address = "[fd00::4]:7000";
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  EXPECT_EQ(Open().FindAddressBefore(), "") << "there was none";
  FOREBAY_EXPECT_OK(Open().Keep(Nodes(), address));
  EXPECT_EQ(Open().FindAddressBefore(), address);
  FOREBAY_EXPECT_OK(Open().Update(Nodes()));
  EXPECT_EQ(Open().FindAddressBefore(), address) << "the list is of the same launch";
  FOREBAY_EXPECT_OK(Open().RemoveAddressBefore());
  EXPECT_EQ(Open().FindAddressBefore(), "");
  FOREBAY_EXPECT_OK(Open().RemoveAddressBefore());  // it is gone already
  EXPECT_TRUE(Open().Find(Own(), 3).has_value());
  FOREBAY_EXPECT_OK(Open().Keep(Nodes(), address));
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  EXPECT_EQ(Open().FindAddressBefore(), "") << "the list is of another launch";
  FOREBAY_EXPECT_OK(Open().Keep(Nodes(), address));
  Open().Remove();
  EXPECT_EQ(Open().FindAddressBefore(), "");
}

TEST_F(KeptListTest, AnAddressBeforeThatIsNoneIsNotUsed) {
  for (const std::string& text :
       {std::string(""), std::string("n7"), std::string("n7:0"), std::string("n7:70000"),
        std::string("\0:7", 3), std::string(1'000, 'h') + ":7000"}) {
    FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
    FOREBAY_EXPECT_OK(backend_.AddFile("/run/forebayd.before", std::as_bytes(std::span(text))));
    EXPECT_EQ(Open().FindAddressBefore(), "") << text;
  }
}

TEST_F(KeptListTest, IsNotThatOfAnotherLaunch) {
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  EXPECT_FALSE(Open().Find(Own(), 2).has_value()) << "another number of nodes";
  const std::function<void(NodeEntry&)> changes[] = {
      [](NodeEntry& own) { own.rank = NodeRank(2); },
      [](NodeEntry& own) { own.identity.job = "4712"; },
      [](NodeEntry& own) { own.identity.host = "n9"; },
      [](NodeEntry& own) { own.identity.ssd_directory = "/other"; },
      [](NodeEntry& own) { own.capacity_bytes = 1; },
      [](NodeEntry& own) { own.agreed[0].value = "b"; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    NodeEntry own = Own();
    changes[i](own);
    EXPECT_FALSE(Open().Find(own, 3).has_value()) << i;
  }
}

// The place keeps its capacity. A daemon with a little less has room for its share all the same.
TEST_F(KeptListTest, IsFoundByADaemonWithOtherTiersThatHaveRoom) {
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  NodeEntry own = Own();
  for (const std::uint64_t bytes : {2ULL << 30, 31ULL << 25}) {
    own.capacity_bytes = bytes;
    EXPECT_EQ(Open().Find(own, 3), Nodes()) << bytes;
  }
  own.capacity_bytes = (31ULL << 25) - 1;
  EXPECT_FALSE(Open().Find(own, 3).has_value());
  EXPECT_FALSE(Open().FindOwn(own).has_value());
}

TEST_F(KeptListTest, IsFoundByANodeThatHasJoinedTheJob) {
  std::vector<NodeEntry> nodes = *WithFreePlaces(Nodes(), 2);
  NodeEntry own = Own();
  own.identity.host = "n9";
  own.place = own.identity;
  own.rank = NodeRank(0);  // it does not know its rank
  FOREBAY_EXPECT_OK(Open().Keep(nodes));
  EXPECT_FALSE(Open().FindOwn(own).has_value()) << "no node of the list is this one";
  NodeEntry joined = own;
  joined.address = {.host = "10.0.0.9", .port = 9};
  nodes[3] = TakePlace(nodes[3], joined);
  FOREBAY_EXPECT_OK(Open().Keep(nodes));
  const auto found = Open().FindOwn(own);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, NodeRank(3));
  EXPECT_EQ(found->nodes, nodes);
  own.rank = NodeRank(3);
  EXPECT_EQ(Open().Find(own, 5), nodes) << "it was told its rank";
  own.agreed[0].value = "b";
  EXPECT_FALSE(Open().FindOwn(own).has_value());
}

TEST_F(KeptListTest, NobodyFindsItselfWhereThereIsNone) {
  EXPECT_FALSE(Open().FindOwn(Own()).has_value());
}

TEST_F(KeptListTest, ADamagedOneIsNotUsed) {
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  auto directory = backend_.OpenDirectory("/run");
  ASSERT_TRUE(directory.has_value());
  FOREBAY_EXPECT_OK((*directory)->Unlink("forebayd.nodes"));
  auto file = (*directory)->Open("forebayd.nodes", io::OpenMode::kCreate);
  ASSERT_TRUE(file.has_value()) << file.error().ToString();
  FOREBAY_EXPECT_OK((*file)->Truncate(50));
  EXPECT_FALSE(Open().Find(Own(), 3).has_value());
  EXPECT_FALSE(Open().FindOwn(Own()).has_value());
  FOREBAY_EXPECT_OK(Open().Keep(Nodes()));
  EXPECT_TRUE(Open().Find(Own(), 3).has_value());
}

}  // namespace forebay::rendezvous::kept_list_test
