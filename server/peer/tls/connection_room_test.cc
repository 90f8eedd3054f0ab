// Which connections PayloadConnections makes, keeps and closes: within the limit, the one that was
// not used for the longest time makes room; nothing is closed that an answer may come by; after
// failures it is tried again ever later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "server/peer/testing/payload_connections_fixture.h"
#include "server/peer/tls/use_order.h"

namespace forebay::peer::payload_connections_test {

TEST(UseOrderTest, TheOneThatWasNotUsedForTheLongestTimeComesFirst) {
  UseOrder order;
  EXPECT_EQ(order.oldest(), nullptr);
  for (const int fd : {5, 3, 4}) order.Touch(fd, fd);
  EXPECT_EQ(order.size(), 3U);
  EXPECT_EQ(order.oldest()->fd, 5);
  order.Touch(5, 9);
  EXPECT_EQ(order.size(), 3U);
  EXPECT_EQ(order.oldest()->fd, 3);
  order.Remove(3);
  order.Remove(3);
  EXPECT_EQ(order.oldest()->fd, 4);
  order.Remove(4);
  EXPECT_EQ(order.oldest()->fd, 5);
  EXPECT_EQ(order.oldest()->used_ns, 9);
}

class ConnectionRoomTest : public PayloadConnectionsTest {
 protected:
  // The time passes on the manual clock, and what is due then is done.
  void Pass(PayloadConnections& connections, std::int64_t ms) {
    manual_.AdvanceNs(ms * kMs);
    AwaitLook(connections);
  }
  static void HearRank(RawNode& raw) {
    ByteWriter rank;
    rank.Le<std::uint32_t>(kSending.value());
    for (const std::byte byte : rank.bytes()) EXPECT_EQ(raw.Hear(), byte);
  }
  // `sending_` is asked by the node at `listener`, and so connects to it. Returns when it is open.
  std::unique_ptr<RawNode> ConnectToRaw(const RawListener& listener) {
    EXPECT_FALSE(sending_->CanSend(kThird, {.tag = 1, .port = listener.port()}));
    auto raw = listener.Accept();
    const PayloadPlace place{.tag = 1, .port = listener.port(), .connection = raw->number()};
    while (!sending_->CanSend(kThird, place)) std::this_thread::yield();
    HearRank(*raw);
    return raw;
  }
  // Waits until `sending_` has noticed the end of the connection.
  void AwaitLost(const RawListener& listener, std::unique_ptr<RawNode> raw) {
    const PayloadPlace place{.tag = 1, .port = listener.port(), .connection = raw->number()};
    raw.reset();
    // As long as the loss has not been noticed, a payload is written without an error, or ends with
    // one when it is.
    for (;;) {
      OwnedPayload sent({1}, 1, 1);
      Outcomes outcome(1);
      sending_->Send(kThird, place, sent.payload, outcome.Ended());
      if (!outcome.Await().has_value()) return;
    }
  }
  // Whether `sending_` connects now to the node that asks it.
  bool Connects(const RawListener& listener) {
    EXPECT_FALSE(sending_->CanSend(kThird, {.tag = 1, .port = listener.port()}));
    AwaitLook(*sending_);
    return listener.IsAsked();
  }
};

// Both nodes have the manual clock: a pause of the one that sends would never end.
TEST_F(ConnectionRoomTest, AConnectionThatIsNotUsedIsClosedByTheNodeThatAsksAndMadeAgainAtOnce) {
  asking_ = Make(kAsking, {.clock = &manual_});
  sending_ = Make(kSending, {.clock = &manual_});
  ExpectArrival();
  AwaitLook(*asking_);  // the payload is the last use
  Pass(*asking_, kIdleMs - 1);
  EXPECT_NE(PlaceOf(*asking_, kSending).connection, 0U);
  Pass(*asking_, 1);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, 0U);
  ExpectArrival();
}

// The other node may be sending it at this moment.
TEST_F(ConnectionRoomTest, AConnectionStaysWhileAnythingIsAwaitedByIt) {
  asking_ = Make(kAsking, {.clock = &manual_});
  Connect(*sending_, kSending, *asking_, kAsking);
  OwnedPayload sent({5'000}, 5'000, 3);
  Outcomes outcome(1);
  Posted posted(*asking_, kSending, {5'000});
  for (int i = 0; i < 3; ++i) Pass(*asking_, 2 * kIdleMs);
  sending_->Send(kAsking, posted.place, sent.payload, outcome.Ended());
  FOREBAY_EXPECT_OK(posted.outcomes.Await());
  EXPECT_EQ(posted.rows.memory, sent.memory);
  FOREBAY_EXPECT_OK(outcome.Await());
  // Its last use was that payload, or a look after it.
  for (int i = 0; i < 2; ++i) Pass(*asking_, kIdleMs);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, 0U);
}

TEST_F(ConnectionRoomTest, TheConnectionThatWasNotUsedForTheLongestTimeMakesRoom) {
  asking_ = Make(kAsking, {.connections_max = 2, .clock = &manual_});
  const auto first = ConnectRaw(*asking_, kSending);
  manual_.AdvanceNs(kMs);
  const auto second = ConnectRaw(*asking_, kThird);
  AwaitLook(*asking_);
  EXPECT_EQ(PlaceOf(*asking_, kFourth).port, 0);
  EXPECT_EQ(PlaceOf(*asking_, kSending).port, asking_->port());  // it has its connection
  Pass(*asking_, kKeepMs - 1);
  EXPECT_EQ(PlaceOf(*asking_, kFourth).port, asking_->port());
  const auto third = ConnectRaw(*asking_, kFourth);
  first->AwaitEnd();
  EXPECT_TRUE(first->was_closed());
  EXPECT_EQ(PlaceOf(*asking_, kThird).connection, second->number());
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, 0U);
}

TEST_F(ConnectionRoomTest, AConnectionThatIsAwaitedDoesNotMakeRoom) {
  asking_ = Make(kAsking, {.connections_max = 2, .clock = &manual_});
  const auto first = ConnectRaw(*asking_, kSending);
  Posted posted(*asking_, kSending, {10});
  const auto second = ConnectRaw(*asking_, kThird);
  manual_.AdvanceNs(kKeepMs * kMs);
  const auto third = ConnectRaw(*asking_, kFourth);
  second->AwaitEnd();
  first->SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 10});
  first->Say(std::vector<std::byte>(10));
  FOREBAY_EXPECT_OK(posted.outcomes.Await());
}

TEST_F(ConnectionRoomTest, ANodeThatComesWithoutAnInvitationFindsNoRoom) {
  asking_ = Make(kAsking, {.connections_max = 1, .clock = &manual_});
  const auto first = ConnectRaw(*asking_, kSending);
  for (int i = 0; i < 3; ++i) {
    RawNode surplus(asking_->port(), Certificates('a'));
    surplus.SayRank(kThird);
    surplus.AwaitEnd();
    EXPECT_TRUE(surplus.was_closed());  // so that its node does not take it for a failure
  }
  EXPECT_EQ(PlaceOf(*asking_, kThird).connection, 0U);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, first->number());
}

// Silent strangers take the places of strangers, and none of nodes that have a connection.
TEST_F(ConnectionRoomTest, SilentStrangersHaveALimitOfTheirOwnAndEndInTime) {
  asking_ = Make(kAsking, {.connections_max = 2, .clock = &manual_});
  const auto node = ConnectRaw(*asking_, kSending);
  const std::vector<UniqueFd> silent = [&] {
    std::vector<UniqueFd> sockets;
    for (int i = 0; i < 2; ++i) sockets.push_back(ConnectTo(asking_->port()));
    return sockets;
  }();
  AwaitLook(*asking_);
  const UniqueFd surplus = ConnectTo(asking_->port());
  char byte = 0;
  EXPECT_EQ(::recv(surplus.get(), &byte, 1, 0), 0);
  EXPECT_EQ(::recv(silent[0].get(), &byte, 1, MSG_DONTWAIT), -1);
  Pass(*asking_, 30'000);
  for (const UniqueFd& each : silent) EXPECT_EQ(::recv(each.get(), &byte, 1, 0), 0);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, node->number());
}

TEST_F(ConnectionRoomTest, ANodeThatSendsAsksForRoomBeyondItsOwnLimit) {
  sending_ = Make(kSending, {.connections_max = 1, .clock = &manual_});
  ExpectArrival();
  const RawListener third;
  EXPECT_FALSE(Connects(third));  // the connection to kAsking was just used
  // kAsking is asked to close it, and does.
  while (!Connects(third)) Pass(*sending_, kKeepMs);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, 0U);
  const auto raw = third.Accept();
  HearRank(*raw);
  AwaitLook(*sending_);
  // Now the other way round, with a node that awaits something and so keeps its connection.
  Pass(*sending_, kKeepMs);
  EXPECT_FALSE(sending_->CanSend(kAsking, PlaceOf(*asking_, kSending)));
  AwaitLook(*sending_);
  // A frame of zeros.
  for (std::size_t i = 0; i < PayloadFrame::kBytes; ++i) EXPECT_EQ(raw->Hear(), std::byte{0});
  const PayloadPlace place{.tag = 1, .port = third.port(), .connection = raw->number()};
  EXPECT_TRUE(sending_->CanSend(kThird, place));
  Pass(*sending_, kKeepMs - 1);
  EXPECT_FALSE(sending_->CanSend(kAsking, PlaceOf(*asking_, kSending)));
  AwaitLook(*sending_);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, 0U);
}

TEST_F(ConnectionRoomTest, ANodeThatIsAskedClosesWhatItAwaitsNothingBy) {
  const auto raw = ConnectRaw(*asking_, kSending);
  Posted posted(*asking_, kSending, {10, 20});
  raw->SayFrame({});
  raw->SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 10});
  raw->Say(std::vector<std::byte>(10));
  FOREBAY_EXPECT_OK(posted.outcomes.Await(0));
  AwaitLook(*asking_);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, raw->number());
  raw->SayFrame({.tag = posted.place.tag, .message = 1, .bytes = 20});
  raw->Say(std::vector<std::byte>(20));
  FOREBAY_EXPECT_OK(posted.outcomes.Await(1));
  EXPECT_EQ(raw->Hear(), PayloadFrame::kCarried);
  raw->SayFrame({});
  raw->AwaitEnd();
  EXPECT_TRUE(raw->was_closed());
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, 0U);
}

// Three nodes ask each other, and a connection by which nothing is awaited is closed at once. Yet
// whatever a node was told that it can send arrives.
TEST_F(ConnectionRoomTest, NoPayloadIsLostWhileConnectionsAreClosedAllTheTime) {
  const Made made{.idle_ms = 1};
  const std::vector<NodeRank> ranks = {kAsking, kSending, kThird};
  std::vector<std::unique_ptr<PayloadConnections>> nodes;
  for (const NodeRank rank : ranks) nodes.push_back(Make(rank, made));
  const auto ask = [&](std::size_t asking, std::size_t sending) {
    std::set<std::uint32_t> connections;
    for (int seed = 0; connections.size() < 5; ++seed) {
      OwnedPayload sent({1'000, 70'000}, 5'000, seed);
      Posted posted(*nodes[asking], ranks[sending], {1'000, 70'000});
      if (!nodes[sending]->CanSend(ranks[asking], posted.place)) {
        nodes[asking]->Cancel(posted.place.tag);
        for (const std::size_t message : {0U, 1U}) AwaitError(posted.outcomes, message);
        std::this_thread::yield();
        continue;
      }
      Outcomes outcomes(2);
      nodes[sending]->Send(ranks[asking], posted.place, sent.payload, outcomes.Ended());
      for (const std::size_t message : {0U, 1U}) {
        FOREBAY_EXPECT_OK(posted.outcomes.Await(message));
        FOREBAY_EXPECT_OK(outcomes.Await(message));
      }
      EXPECT_EQ(posted.rows.memory, sent.memory);
      connections.insert(posted.place.connection);
      // Often long enough for the connection to be closed.
      for (int look = 0; look < 20; ++look) AwaitLook(*nodes[asking]);
    }
  };
  std::vector<std::jthread> threads;
  for (const std::size_t asking : {0U, 1U, 2U}) {
    for (const std::size_t sending : {0U, 1U, 2U}) {
      if (asking != sending) threads.emplace_back(ask, asking, sending);
    }
  }
}

TEST_F(ConnectionRoomTest, PausesGrowUntilAPayloadHasCome) {
  sending_ = Make(kSending, {.clock = &manual_});
  const RawListener listener;
  // Handshakes get through, and nothing else.
  AwaitLost(listener, ConnectToRaw(listener));
  for (const std::int64_t pause_ms : {10, 20, 40, 80}) {
    manual_.AdvanceNs(pause_ms * kMs - 1);
    EXPECT_FALSE(Connects(listener));
    manual_.AdvanceNs(1);
    AwaitLost(listener, ConnectToRaw(listener));
  }
  for (int i = 0; i < 20; ++i) {
    manual_.AdvanceNs(60'000 * kMs);
    AwaitLost(listener, ConnectToRaw(listener));
  }
  manual_.AdvanceNs(59'999 * kMs);
  EXPECT_FALSE(Connects(listener));
  manual_.AdvanceNs(kMs);
  auto raw = ConnectToRaw(listener);
  raw->Say(std::span(&PayloadFrame::kCarried, 1));
  AwaitLost(listener, std::move(raw));
  manual_.AdvanceNs(10 * kMs);
  EXPECT_TRUE(Connects(listener));
}

// A firewall that lets handshakes through and drops the rest keeps one payload, and not all.
TEST_F(ConnectionRoomTest, OnePayloadGoesFirst) {
  sending_ = Make(kSending, {.clock = &manual_});
  const RawListener listener;
  auto raw = ConnectToRaw(listener);
  const PayloadPlace place{.tag = 1, .port = listener.port(), .connection = raw->number()};
  EXPECT_FALSE(sending_->CanSend(kThird, place)) << "ConnectToRaw was told that it can";
  manual_.AdvanceNs(15'000 * kMs);
  EXPECT_FALSE(sending_->CanSend(kThird, place));
  AwaitLost(listener, std::move(raw));
  // It has cost its reader 15 s.
  manual_.AdvanceNs(60'000 * kMs - 1);
  EXPECT_FALSE(Connects(listener));
  manual_.AdvanceNs(1);
  raw = ConnectToRaw(listener);
  const PayloadPlace next{.tag = 1, .port = listener.port(), .connection = raw->number()};
  // The other node has perhaps cancelled it.
  manual_.AdvanceNs(20'000 * kMs);
  EXPECT_TRUE(sending_->CanSend(kThird, next));
  EXPECT_FALSE(sending_->CanSend(kThird, next));
  raw->Say(std::span(&PayloadFrame::kCarried, 1));
  while (!sending_->CanSend(kThird, next)) std::this_thread::yield();
  EXPECT_TRUE(sending_->CanSend(kThird, next)) << "one has come";
}

// Part of a rank says nothing yet.
TEST_F(ConnectionRoomTest, ANodeIsAStrangerUntilItHasSaidWhoItIs) {
  asking_ = Make(kAsking, {.connections_max = 1, .clock = &manual_});
  const auto first = ConnectRaw(*asking_, kSending);
  RawNode half(asking_->port(), Certificates('a'));
  half.Say(std::vector<std::byte>(1));
  for (int i = 0; i < 10; ++i) AwaitLook(*asking_);
  const UniqueFd surplus = ConnectTo(asking_->port());
  char byte = 0;
  EXPECT_EQ(::recv(surplus.get(), &byte, 1, 0), 0);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, first->number());
}

// Nobody is told the port who would be refused.
TEST_F(ConnectionRoomTest, WhileStrangersHaveAllPlacesNobodyIsInvited) {
  asking_ = Make(kAsking, {.connections_max = 1, .clock = &manual_});
  EXPECT_EQ(PlaceOf(*asking_, kSending).port, asking_->port());
  const UniqueFd silent = ConnectTo(asking_->port());
  while (PlaceOf(*asking_, kSending).port != 0) AwaitLook(*asking_);
  Pass(*asking_, 30'000);
  while (PlaceOf(*asking_, kSending).port == 0) AwaitLook(*asking_);
}

TEST_F(ConnectionRoomTest, PausesBeginAgainWithANodeThatWasStartedAgain) {
  sending_ = Make(kSending, {.clock = &manual_});
  const RawListener listener;
  AwaitLost(listener, ConnectToRaw(listener));
  EXPECT_FALSE(Connects(listener));
  const RawListener another;
  EXPECT_TRUE(Connects(another));
}

TEST_F(ConnectionRoomTest, ANodeThatSaysAnythingElseThanOnceThatAPayloadHasComeIsLeft) {
  const RawListener listener;
  {
    const auto raw = ConnectToRaw(listener);
    raw->Say(std::vector<std::byte>(1, std::byte{7}));
    raw->AwaitEnd();
  }
  const RawListener another;  // without a pause
  const auto raw = ConnectToRaw(another);
  raw->Say(std::vector<std::byte>(2, PayloadFrame::kCarried));
  raw->AwaitEnd();
}

TEST_F(ConnectionRoomTest, WithoutDescriptorsItAcceptsLater) {
  asking_ = Make(kAsking, {.clock = &manual_});
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  payload_connections_test::Connect(socket.get(), asking_->port());
  AwaitLook(*asking_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  RawNode raw(std::move(socket), TlsSession::End::kClient, Certificates('a'));
  EXPECT_EQ(raw.Handshake(), TlsSession::Outcome::kBlocked);
  AwaitLook(*asking_);
  AwaitLook(*asking_);
  EXPECT_EQ(raw.Handshake(), TlsSession::Outcome::kBlocked);
  Pass(*asking_, 1'000);
  while (raw.Handshake() == TlsSession::Outcome::kBlocked) std::this_thread::yield();
  raw.SayRank(kSending);
  while (PlaceOf(*asking_, kSending).connection != raw.number()) std::this_thread::yield();
}

}  // namespace forebay::peer::payload_connections_test
