// PayloadConnections over loopback: payloads of any form arrive, cancelled ones do not; strangers
// and nodes that break the protocol are refused, and cost only their own connection.
#include "server/peer/tls/payload_connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/peer/testing/payload_connections_fixture.h"

namespace forebay::peer::payload_connections_test {

using ::testing::HasSubstr;

TEST_F(PayloadConnectionsTest, NothingCanBeSentBeforeThereIsAConnection) {
  Posted posted(*asking_, kSending, {10});
  EXPECT_EQ(posted.place.connection, 0U);
  EXPECT_EQ(posted.place.port, asking_->port());
  EXPECT_FALSE(sending_->CanSend(kAsking, posted.place));
  Outcomes outcome(1);
  sending_->Send(kAsking, posted.place, posted.rows.payload, outcome.Ended());
  EXPECT_EQ(AwaitError(outcome), ErrorCode::kUnavailable);
  asking_->Cancel(posted.place.tag);
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kCancelled);
}

TEST_F(PayloadConnectionsTest, NobodyIsConnectedToWhoIsNoNodeOrNamesNoPort) {
  EXPECT_FALSE(sending_->CanSend(NodeRank(7), {.tag = 1, .port = asking_->port()}));
  EXPECT_FALSE(sending_->CanSend(kSending, {.tag = 1, .port = asking_->port()}));
  EXPECT_FALSE(sending_->CanSend(kAsking, {.tag = 1}));
  EXPECT_FALSE(sending_->CanSend(kAsking, {.port = asking_->port()}));
}

TEST_F(PayloadConnectionsTest, PayloadsOfAnyFormArriveInBothDirections) {
  Connect(*sending_, kSending, *asking_, kAsking);
  Connect(*asking_, kAsking, *sending_, kSending);
  const auto exchange = [](PayloadConnections& from, NodeRank from_rank, PayloadConnections& to,
                           NodeRank to_rank, unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 60; ++i) {
      std::vector<std::size_t> lengths(1 + random() % 5);
      for (std::size_t& length : lengths) length = 1 + random() % 200'000;
      OwnedPayload sent(lengths, 1 + random() % 70'000, i);
      Outcomes outcomes(lengths.size());
      Posted posted(to, from_rank, lengths, 1 + random() % 70'000);
      ASSERT_TRUE(from.CanSend(to_rank, posted.place));
      from.Send(to_rank, posted.place, sent.payload, outcomes.Ended());
      for (std::size_t message = 0; message < lengths.size(); ++message) {
        FOREBAY_EXPECT_OK(posted.outcomes.Await(message));
        FOREBAY_EXPECT_OK(outcomes.Await(message));
      }
      ASSERT_EQ(posted.rows.memory, sent.memory);
    }
  };
  std::jthread there([&] { exchange(*sending_, kSending, *asking_, kAsking, 1); });
  exchange(*asking_, kAsking, *sending_, kSending, 2);
}

TEST_F(PayloadConnectionsTest, WhatIsCancelledBeforeItComesIsThrownAway) {
  Connect(*sending_, kSending, *asking_, kAsking);
  OwnedPayload sent({300'000}, 300'000, 1);
  Outcomes outcome(1);
  Posted posted(*asking_, kSending, {300'000});
  const std::vector<std::byte> before = posted.rows.memory;
  asking_->Cancel(posted.place.tag);
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kCancelled);
  sending_->Send(kAsking, posted.place, sent.payload, outcome.Ended());
  FOREBAY_EXPECT_OK(outcome.Await());
  ExpectArrival();  // by the same connection, after the bytes that nobody waits for
  EXPECT_EQ(posted.rows.memory, before);
  asking_->Cancel(posted.place.tag);  // has no effect
}

TEST_F(PayloadConnectionsTest, ACancelInTheMiddleOfAMessageEndsItAtOnce) {
  const auto raw = ConnectRaw(*asking_, kSending);
  Posted posted(*asking_, kSending, {100, 1'000});
  ASSERT_EQ(posted.place.connection, raw->number());
  const std::vector<std::byte> bytes(1'000, std::byte{7});
  raw->SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 100});
  raw->Say(std::span(bytes).first(100));
  FOREBAY_EXPECT_OK(posted.outcomes.Await(0));
  raw->SayFrame({.tag = posted.place.tag, .message = 1, .bytes = 1'000});
  raw->Say(std::span(bytes).first(400));
  asking_->Cancel(posted.place.tag);
  EXPECT_EQ(AwaitError(posted.outcomes, 1), ErrorCode::kCancelled);
  // The memory is not written any more.
  std::ranges::fill(posted.rows.memory, std::byte{1});
  raw->Say(std::span(bytes).first(600));
  Posted next(*asking_, kSending, {10});
  raw->SayFrame({.tag = next.place.tag, .message = 0, .bytes = 10});
  raw->Say(std::span(bytes).first(10));
  FOREBAY_EXPECT_OK(next.outcomes.Await());
  EXPECT_EQ(std::ranges::count(posted.rows.memory, std::byte{1}), 1'100);
}

TEST_F(PayloadConnectionsTest, BytesThatNobodyWaitsForAreThrownAway) {
  const auto raw = ConnectRaw(*asking_, kSending);
  const std::vector<std::byte> bytes(100, std::byte{7});
  Posted of_another_node(*asking_, kThird, {100});
  Posted posted(*asking_, kSending, {100});
  // A tag that there is not, one of another node, and a message beyond the last one.
  raw->SayFrame({.tag = posted.place.tag + 1, .message = 0, .bytes = 100});
  raw->Say(bytes);
  raw->SayFrame({.tag = of_another_node.place.tag, .message = 0, .bytes = 100});
  raw->Say(bytes);
  raw->SayFrame({.tag = posted.place.tag, .message = 1, .bytes = 100});
  raw->Say(bytes);
  raw->SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 100});
  raw->Say(bytes);
  FOREBAY_EXPECT_OK(posted.outcomes.Await());
  EXPECT_EQ(posted.rows.memory, bytes);
  EXPECT_NE(of_another_node.rows.memory, bytes);
  // The same message once more: its receive has ended.
  raw->SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 100});
  raw->Say(bytes);
  Posted next(*asking_, kSending, {100});
  raw->SayFrame({.tag = next.place.tag, .message = 0, .bytes = 100});
  raw->Say(bytes);
  FOREBAY_EXPECT_OK(next.outcomes.Await());
  asking_->Cancel(of_another_node.place.tag);
  EXPECT_EQ(AwaitError(of_another_node.outcomes), ErrorCode::kCancelled);
}

TEST_F(PayloadConnectionsTest, AnotherLengthEndsTheMessageAndNotTheConnection) {
  const auto raw = ConnectRaw(*asking_, kSending);
  Posted posted(*asking_, kSending, {100, 50});
  const std::vector<std::byte> bytes(100, std::byte{7});
  raw->SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 99});
  raw->Say(std::span(bytes).first(99));
  raw->SayFrame({.tag = posted.place.tag, .message = 1, .bytes = 50});
  raw->Say(std::span(bytes).first(50));
  const Status wrong = posted.outcomes.Await(0);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), ErrorCode::kInternal);
  EXPECT_THAT(wrong.error().message(), HasSubstr("99 bytes, and 100 are awaited"));
  FOREBAY_EXPECT_OK(posted.outcomes.Await(1));
  // The longest length that can be named takes no memory.
  Posted hostile(*asking_, kSending, {100});
  raw->SayFrame({.tag = hostile.place.tag, .message = 0, .bytes = ~std::uint64_t{0}});
  EXPECT_EQ(AwaitError(hostile.outcomes), ErrorCode::kInternal);
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, ANodeThatVanishesEndsWhatIsAwaitedFromIt) {
  auto raw = ConnectRaw(*asking_, kSending);
  Posted begun(*asking_, kSending, {1'000});
  Posted unseen(*asking_, kSending, {1'000});
  Posted of_another_node(*asking_, kThird, {1'000});
  raw->SayFrame({.tag = begun.place.tag, .message = 0, .bytes = 1'000});
  raw->Say(std::vector<std::byte>(400));
  raw.reset();
  EXPECT_EQ(AwaitError(begun.outcomes), ErrorCode::kUnavailable);
  EXPECT_EQ(AwaitError(unseen.outcomes), ErrorCode::kUnavailable);
  ExpectArrival();
  asking_->Cancel(of_another_node.place.tag);
  EXPECT_EQ(AwaitError(of_another_node.outcomes), ErrorCode::kCancelled);
}

TEST_F(PayloadConnectionsTest, AFrameThatEndsInTheMiddleEndsTheConnection) {
  auto raw = ConnectRaw(*asking_, kSending);
  Posted posted(*asking_, kSending, {10});
  raw->Say(std::vector<std::byte>(7));
  raw.reset();
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kUnavailable);
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, AConnectionTakesThePlaceOfTheOneBefore) {
  const auto old = ConnectRaw(*asking_, kSending);
  Posted posted(*asking_, kSending, {10});
  const auto raw = ConnectRaw(*asking_, kSending);
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kUnavailable);
  old->AwaitEnd();
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, raw->number());
}

TEST_F(PayloadConnectionsTest, ARankThatIsNoOtherNodeIsRefused) {
  for (const NodeRank rank : {kAsking, NodeRank(3)}) {
    RawNode raw(asking_->port(), Certificates('a'));
    raw.SayRank(rank);
    raw.AwaitEnd();
  }
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, StrangersAreRefused) {
  NodeCertificates forged = Certificates('b');
  forged.authority = Certificates('a').authority;
  for (const NodeCertificates& certificates : {Certificates('b'), OfClient(), forged}) {
    RawNode raw(asking_->port(), certificates);
    raw.AwaitEnd();
    Posted posted(*asking_, kSending, {1});
    EXPECT_EQ(posted.place.connection, 0U);
    asking_->Cancel(posted.place.tag);
    EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kCancelled);
  }
  ExpectArrival();
}

// A node sends its rows to nobody who shows another certificate at the port that was named.
TEST_F(PayloadConnectionsTest, ANodeDoesNotSendToAStranger) {
  for (const NodeCertificates& certificates : {Certificates('b'), OfClient()}) {
    const auto stranger = Make(kThird, {.certificates = certificates});
    Posted posted(*stranger, kSending, {1});
    for (int i = 0; i < 20; ++i) {
      EXPECT_FALSE(sending_->CanSend(kThird, posted.place));
      ExpectArrival();  // takes the turns in which the handshake fails
    }
    stranger->Cancel(posted.place.tag);
    EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kCancelled);
  }
}

TEST_F(PayloadConnectionsTest, PlaintextIsRefused) {
  const UniqueFd socket = ConnectTo(asking_->port());
  const std::string garbage(4'000, 'G');
  ASSERT_EQ(::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(garbage.size()));
  // An alert of TLS may come first.
  char byte = 0;
  while (::recv(socket.get(), &byte, 1, 0) > 0) {
  }
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, AConnectionThatSaysNothingIsClosed) {
  asking_ = Make(kAsking, {.handshake_ms = 20});
  const UniqueFd silent = ConnectTo(asking_->port());
  char byte = 0;
  EXPECT_EQ(::recv(silent.get(), &byte, 1, 0), 0);
  RawNode without_rank(asking_->port(), Certificates('a'));
  without_rank.AwaitEnd();
}

// A node that does not read keeps its own connection full, and no other one.
TEST_F(PayloadConnectionsTest, ANodeThatDoesNotReadHoldsUpNobodyElse) {
  const RawListener stopped;
  PayloadPlace place{.tag = 1, .port = stopped.port()};
  EXPECT_FALSE(sending_->CanSend(kThird, place));
  const auto raw = stopped.Accept();
  place.connection = raw->number();
  while (!sending_->CanSend(kThird, place)) std::this_thread::yield();
  // More than the buffers of the kernel take.
  OwnedPayload sent({64 << 20}, 1 << 20, 1);
  Outcomes outcome(1);
  sending_->Send(kThird, place, sent.payload, outcome.Ended());
  ExpectArrival();
  sending_->Stop();
  EXPECT_EQ(AwaitError(outcome), ErrorCode::kUnavailable);
}

TEST_F(PayloadConnectionsTest, StopEndsWhatIsUnderWay) {
  Connect(*sending_, kSending, *asking_, kAsking);
  Posted posted(*asking_, kSending, {10});
  asking_->Stop();
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kUnavailable);
  Posted late(*asking_, kSending, {10});
  EXPECT_EQ(late.place.connection, 0U);
  asking_->Cancel(late.place.tag);
  EXPECT_EQ(AwaitError(late.outcomes), ErrorCode::kCancelled);
  EXPECT_FALSE(asking_->CanSend(kSending, {.tag = 1, .port = sending_->port()}));
  asking_->Stop();  // once more has no effect
}

TEST_F(PayloadConnectionsTest, ANodeThatIsStartedAgainIsConnectedToAtItsNewPort) {
  ExpectArrival();
  asking_ = Make(kAsking);
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, ANodeThatAnotherOneHasReplacedIsConnectedToAtItsHost) {
  Connect(*sending_, kSending, *asking_, kAsking);
  Posted posted(*asking_, kSending, {10});
  sending_->SetHost(kAsking, "127.0.0.2");
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kUnavailable);
  asking_ = Make(kAsking, {.host = "127.0.0.2"});
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, WhatIsOnItsWayToANodeThatIsReplacedEnds) {
  const RawListener before;
  PayloadPlace place{.tag = 1, .port = before.port()};
  EXPECT_FALSE(sending_->CanSend(kThird, place));
  const auto raw = before.Accept();
  place.connection = raw->number();
  while (!sending_->CanSend(kThird, place)) std::this_thread::yield();
  // More than the buffers of the kernel take.
  OwnedPayload sent({64 << 20}, 1 << 20, 1);
  Outcomes outcome(1);
  sending_->Send(kThird, place, sent.payload, outcome.Ended());
  sending_->SetHost(kThird, "127.0.0.2");
  const Status ended = outcome.Await();
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code(), ErrorCode::kUnavailable);
  // And not because the kernel has given the connection up, which it does some time later.
  EXPECT_THAT(ended.error().message(), HasSubstr("another node is in its place"));
  EXPECT_FALSE(sending_->CanSend(kThird, place));
}

TEST_F(PayloadConnectionsTest, TheSameHostChangesNothing) {
  Connect(*sending_, kSending, *asking_, kAsking);
  const PayloadPlace before = PlaceOf(*asking_, kSending);
  sending_->SetHost(kAsking, "127.0.0.1");
  AwaitLook(*sending_);
  AwaitLook(*asking_);
  EXPECT_EQ(PlaceOf(*asking_, kSending).connection, before.connection);
  ExpectArrival();
}

// Rank 3 has no host at first.
TEST_F(PayloadConnectionsTest, ANodeThatComesLaterCanSendAndBeSentTo) {
  constexpr NodeRank kLater{3};
  const auto later = Make(kLater);
  EXPECT_FALSE(asking_->CanSend(kLater, {.tag = 1, .port = later->port()}));
  asking_->SetHost(kLater, "127.0.0.1");
  Connect(*asking_, kAsking, *later, kLater);
  Connect(*later, kLater, *asking_, kAsking);
}

// The pause after a failure is not over, by a clock that stands still.
TEST_F(PayloadConnectionsTest, WhatFailedAtTheHostBeforeDoesNotCount) {
  const auto sending = Make(kSending, {.clock = &manual_});
  const RawListener listener;
  const PayloadPlace place{.tag = 1, .port = listener.port()};
  sending->SetHost(kThird, "no address");
  EXPECT_FALSE(sending->CanSend(kThird, place));
  AwaitLook(*sending);
  EXPECT_FALSE(sending->CanSend(kThird, place));
  sending->SetHost(kThird, "127.0.0.1");
  AwaitLook(*sending);
  EXPECT_FALSE(sending->CanSend(kThird, place));
  AwaitLook(*sending);
  EXPECT_TRUE(listener.IsAsked());
}

TEST_F(PayloadConnectionsTest, AddressesThatCannotBeUsedAreErrors) {
  const auto refused = [&](const std::string& host, std::uint16_t port,
                           const NodeCertificates& certificates) {
    const auto made = PayloadConnections::Create({.host = host,
                                                  .first_port = port,
                                                  .last_port = port,
                                                  .certificates = certificates},
                                                 clock_);
    return made.has_value() ? ErrorCode::kUnknown : made.error().code();
  };
  EXPECT_EQ(refused("127.0.0.1", asking_->port(), Certificates('a')), ErrorCode::kUnavailable);
  EXPECT_EQ(refused("host.invalid", 0, Certificates('a')), ErrorCode::kUnavailable);
  EXPECT_EQ(refused("127.0.0.1", 0, {}), ErrorCode::kInternal);
}

}  // namespace forebay::peer::payload_connections_test
