// PayloadConnections over loopback: payloads of any form arrive, cancelled ones do not; strangers
// and nodes that break the protocol are refused, and cost only their own connection.
#include "server/peer/tls/payload_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/io/testing/io_test_fixture.h"
#include "server/peer/testing/owned_payload.h"

namespace forebay::peer::payload_connections_test {

using io::testing::Take;
using ::testing::HasSubstr;

constexpr NodeRank kAsking{0};
constexpr NodeRank kSending{1};
constexpr NodeRank kThird{2};

NodeCertificates Certificates(char secret) {
  constexpr std::int64_t kDayS = 86'400;
  const std::int64_t now_s = std::time(nullptr);
  return Take(MakeNodeCertificates(std::string(kJobSecretBytesMin, secret), "job",
                                   {.from_s = now_s - kDayS, .until_s = now_s + kDayS}));
}

// The certificate and the key of a client, in the place of those of a node.
NodeCertificates OfClient() {
  NodeCertificates certificates = Certificates('a');
  certificates.node = certificates.client;
  certificates.key = certificates.client_key;
  return certificates;
}

ErrorCode AwaitError(Outcomes& outcomes, std::size_t message = 0) {
  const Status status = outcomes.Await(message);
  EXPECT_FALSE(status.has_value());
  return status.has_value() ? ErrorCode::kUnknown : status.error().code();
}

// A receive of one message with memory and outcome of its own.
struct Posted {
  Posted(PayloadConnections& connections, NodeRank node, const std::vector<std::size_t>& lengths,
         std::size_t piece_bytes = 64 * 1024)
      : rows(lengths, piece_bytes, /*seed=*/99), outcomes(lengths.size()) {
    place = connections.Receive(node, rows.payload, outcomes.Ended());
  }
  OwnedPayload rows;
  Outcomes outcomes;
  PayloadPlace place;
};

UniqueFd ConnectTo(std::uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

// As a TlsSession needs it.
UniqueFd WithoutBlocking(UniqueFd socket) {
  EXPECT_EQ(::fcntl(socket.get(), F_SETFL, O_NONBLOCK), 0);
  return socket;
}

// A node that writes to its connection whatever a test wants.
class RawNode {
 public:
  RawNode(std::uint16_t port, const NodeCertificates& certificates)
      : context_(Take(MakeTlsContext(certificates))) {
    session_ = Take(TlsSession::Create(*context_, WithoutBlocking(ConnectTo(port)),
                                       TlsSession::End::kClient));
    while (session_->Handshake() == TlsSession::Outcome::kBlocked) AwaitInput();
  }
  void SayRank(NodeRank node) {
    ByteWriter head;
    head.Le<std::uint32_t>(node.value());
    Say(head.bytes());
  }
  void SayFrame(const PayloadFrame& frame) {
    ByteWriter head;
    frame.Write(head);
    Say(head.bytes());
  }
  void Say(std::span<const std::byte> bytes) {
    ASSERT_EQ(session_->Write(bytes), TlsSession::Outcome::kDone);
    ASSERT_EQ(session_->Flush(), TlsSession::Outcome::kDone);
  }
  // Waits until the other node has closed the connection.
  void AwaitEnd() {
    std::byte byte{};
    for (;;) {
      const TlsSession::ReadBytes read = session_->Read(std::span(&byte, 1));
      ASSERT_NE(read.outcome, TlsSession::Outcome::kDone) << "it has said something";
      if (read.outcome == TlsSession::Outcome::kEnded) return;
      AwaitInput();
    }
  }
  std::uint32_t number() const { return session_->number(); }

 private:
  void AwaitInput() {
    pollfd ready{.fd = session_->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&ready, 1, 30'000), 1);
  }
  TlsContext context_;
  std::unique_ptr<TlsSession> session_;
};

class PayloadConnectionsTest : public ::testing::Test {
 protected:
  std::unique_ptr<PayloadConnections> Make(NodeRank self,
                                           const NodeCertificates& certificates = Certificates('a'),
                                           std::int64_t idle_ms = 120'000,
                                           std::int64_t handshake_ms = 30'000) {
    std::map<NodeRank, std::string> hosts;
    for (const NodeRank node : {kAsking, kSending, kThird}) {
      if (node != self) hosts[node] = "127.0.0.1";
    }
    return Take(PayloadConnections::Create({.self = self,
                                            .host = "127.0.0.1",
                                            .hosts = std::move(hosts),
                                            .certificates = certificates,
                                            .idle_ms = idle_ms,
                                            .handshake_ms = handshake_ms},
                                           clock_));
  }
  // Waits until `from` can send to `to`.
  static void Connect(PayloadConnections& from, NodeRank from_rank, PayloadConnections& to,
                      NodeRank to_rank) {
    bool is_open = false;
    while (!is_open) {
      Posted posted(to, from_rank, {1});
      is_open = from.CanSend(to_rank, posted.place);
      to.Cancel(posted.place.tag);
      AwaitError(posted.outcomes);  // perhaps with a connection that this one replaces
      std::this_thread::yield();
    }
  }
  // Waits until `asking` expects the bytes of `raw` by its connection.
  static void AwaitOpen(PayloadConnections& asking, const RawNode& raw) {
    std::uint32_t number = 0;
    while (number != raw.number()) {
      Posted posted(asking, kSending, {1});
      number = posted.place.connection;
      asking.Cancel(posted.place.tag);
      AwaitError(posted.outcomes);
      std::this_thread::yield();
    }
  }
  // A payload from `sending_` arrives, so the thread of `asking_` works.
  void ExpectArrival() {
    Connect(*sending_, kSending, *asking_, kAsking);
    OwnedPayload sent({5'000}, 5'000, 3);
    Outcomes outcome(1);
    Posted posted(*asking_, kSending, {5'000});
    sending_->Send(kAsking, posted.place, sent.payload, outcome.Ended());
    FOREBAY_EXPECT_OK(posted.outcomes.Await());
    FOREBAY_EXPECT_OK(outcome.Await());
    EXPECT_EQ(posted.rows.memory, sent.memory);
  }

  io::SteadyClock clock_;
  std::unique_ptr<PayloadConnections> asking_ = Make(kAsking);
  std::unique_ptr<PayloadConnections> sending_ = Make(kSending);
};

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
  RawNode raw(asking_->port(), Certificates('a'));
  raw.SayRank(kSending);
  AwaitOpen(*asking_, raw);
  Posted posted(*asking_, kSending, {100, 1'000});
  ASSERT_EQ(posted.place.connection, raw.number());
  const std::vector<std::byte> bytes(1'000, std::byte{7});
  raw.SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 100});
  raw.Say(std::span(bytes).first(100));
  FOREBAY_EXPECT_OK(posted.outcomes.Await(0));
  raw.SayFrame({.tag = posted.place.tag, .message = 1, .bytes = 1'000});
  raw.Say(std::span(bytes).first(400));
  asking_->Cancel(posted.place.tag);
  EXPECT_EQ(AwaitError(posted.outcomes, 1), ErrorCode::kCancelled);
  // The memory is not written any more.
  std::ranges::fill(posted.rows.memory, std::byte{1});
  raw.Say(std::span(bytes).first(600));
  Posted next(*asking_, kSending, {10});
  raw.SayFrame({.tag = next.place.tag, .message = 0, .bytes = 10});
  raw.Say(std::span(bytes).first(10));
  FOREBAY_EXPECT_OK(next.outcomes.Await());
  EXPECT_EQ(std::ranges::count(posted.rows.memory, std::byte{1}), 1'100);
}

TEST_F(PayloadConnectionsTest, BytesThatNobodyWaitsForAreThrownAway) {
  RawNode raw(asking_->port(), Certificates('a'));
  raw.SayRank(kSending);
  AwaitOpen(*asking_, raw);
  const std::vector<std::byte> bytes(100, std::byte{7});
  Posted of_another_node(*asking_, kThird, {100});
  Posted posted(*asking_, kSending, {100});
  // A tag that there is not, one of another node, and a message beyond the last one.
  raw.SayFrame({.tag = posted.place.tag + 1, .message = 0, .bytes = 100});
  raw.Say(bytes);
  raw.SayFrame({.tag = of_another_node.place.tag, .message = 0, .bytes = 100});
  raw.Say(bytes);
  raw.SayFrame({.tag = posted.place.tag, .message = 1, .bytes = 100});
  raw.Say(bytes);
  raw.SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 100});
  raw.Say(bytes);
  FOREBAY_EXPECT_OK(posted.outcomes.Await());
  EXPECT_EQ(posted.rows.memory, bytes);
  EXPECT_NE(of_another_node.rows.memory, bytes);
  // The same message once more: its receive has ended.
  raw.SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 100});
  raw.Say(bytes);
  Posted next(*asking_, kSending, {100});
  raw.SayFrame({.tag = next.place.tag, .message = 0, .bytes = 100});
  raw.Say(bytes);
  FOREBAY_EXPECT_OK(next.outcomes.Await());
  asking_->Cancel(of_another_node.place.tag);
  EXPECT_EQ(AwaitError(of_another_node.outcomes), ErrorCode::kCancelled);
}

TEST_F(PayloadConnectionsTest, AnotherLengthEndsTheMessageAndNotTheConnection) {
  RawNode raw(asking_->port(), Certificates('a'));
  raw.SayRank(kSending);
  AwaitOpen(*asking_, raw);
  Posted posted(*asking_, kSending, {100, 50});
  const std::vector<std::byte> bytes(100, std::byte{7});
  raw.SayFrame({.tag = posted.place.tag, .message = 0, .bytes = 99});
  raw.Say(std::span(bytes).first(99));
  raw.SayFrame({.tag = posted.place.tag, .message = 1, .bytes = 50});
  raw.Say(std::span(bytes).first(50));
  const Status wrong = posted.outcomes.Await(0);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), ErrorCode::kInternal);
  EXPECT_THAT(wrong.error().message(), HasSubstr("99 bytes, and 100 are awaited"));
  FOREBAY_EXPECT_OK(posted.outcomes.Await(1));
  // The longest length that can be named takes no memory.
  Posted hostile(*asking_, kSending, {100});
  raw.SayFrame({.tag = hostile.place.tag, .message = 0, .bytes = ~std::uint64_t{0}});
  EXPECT_EQ(AwaitError(hostile.outcomes), ErrorCode::kInternal);
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, ANodeThatVanishesEndsWhatIsAwaitedFromIt) {
  auto raw = std::make_unique<RawNode>(asking_->port(), Certificates('a'));
  raw->SayRank(kSending);
  AwaitOpen(*asking_, *raw);
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
  auto raw = std::make_unique<RawNode>(asking_->port(), Certificates('a'));
  raw->SayRank(kSending);
  AwaitOpen(*asking_, *raw);
  Posted posted(*asking_, kSending, {10});
  raw->Say(std::vector<std::byte>(7));
  raw.reset();
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kUnavailable);
  ExpectArrival();
}

TEST_F(PayloadConnectionsTest, AConnectionTakesThePlaceOfTheOneBefore) {
  RawNode old(asking_->port(), Certificates('a'));
  old.SayRank(kSending);
  AwaitOpen(*asking_, old);
  Posted posted(*asking_, kSending, {10});
  RawNode raw(asking_->port(), Certificates('a'));
  raw.SayRank(kSending);
  EXPECT_EQ(AwaitError(posted.outcomes), ErrorCode::kUnavailable);
  old.AwaitEnd();
  AwaitOpen(*asking_, raw);
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
    const auto stranger = Make(kThird, certificates);
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
  asking_ = Make(kAsking, Certificates('a'), /*idle_ms=*/120'000, /*handshake_ms=*/20);
  const UniqueFd silent = ConnectTo(asking_->port());
  char byte = 0;
  EXPECT_EQ(::recv(silent.get(), &byte, 1, 0), 0);
  RawNode without_rank(asking_->port(), Certificates('a'));
  without_rank.AwaitEnd();
}

TEST_F(PayloadConnectionsTest, AnIdleConnectionIsClosedAndMadeAgain) {
  sending_ = Make(kSending, Certificates('a'), /*idle_ms=*/20);
  ExpectArrival();
  std::uint32_t number = 1;
  while (number != 0) {
    Posted posted(*asking_, kSending, {1});
    number = posted.place.connection;
    asking_->Cancel(posted.place.tag);
    AwaitError(posted.outcomes);
    std::this_thread::yield();
  }
  sending_ = Make(kSending);
  ExpectArrival();
}

// A node that does not read keeps its own connection full, and no other one.
TEST_F(PayloadConnectionsTest, ANodeThatDoesNotReadHoldsUpNobodyElse) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  PayloadPlace place{.tag = 1, .port = ntohs(address.sin_port)};
  EXPECT_FALSE(sending_->CanSend(kThird, place));
  const auto context = Take(MakeTlsContext(Certificates('a')));
  const auto stopped =
      Take(TlsSession::Create(*context,
                              WithoutBlocking(UniqueFd(::accept(listener.get(), nullptr, nullptr))),
                              TlsSession::End::kServer));
  while (stopped->Handshake() == TlsSession::Outcome::kBlocked) {
  }
  place.connection = stopped->number();
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
