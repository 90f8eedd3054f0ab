// The fixture of tests of PayloadConnections: nodes of a job with a secret, which are connected
// over loopback, and classes with which a test writes to one end of a connection itself.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/peer/testing/owned_payload.h"
#include "server/peer/tls/payload_connections.h"

namespace forebay::peer::payload_connections_test {

using io::testing::Take;

constexpr NodeRank kAsking{0};
constexpr NodeRank kSending{1};
constexpr NodeRank kThird{2};
constexpr NodeRank kFourth{4};  // 3 is no node
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kIdleMs = 120'000;
constexpr std::int64_t kKeepMs = 10'000;

inline NodeCertificates Certificates(char secret) {
  constexpr std::int64_t kDayS = 86'400;
  const std::int64_t now_s = std::time(nullptr);
  return Take(MakeNodeCertificates(std::string(kJobSecretBytesMin, secret), "job",
                                   {.from_s = now_s - kDayS, .until_s = now_s + kDayS}));
}

// The certificate and the key of a client, in the place of those of a node.
inline NodeCertificates OfClient() {
  NodeCertificates certificates = Certificates('a');
  certificates.node = certificates.client;
  certificates.key = certificates.client_key;
  return certificates;
}

inline ErrorCode AwaitError(Outcomes& outcomes, std::size_t message = 0) {
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

inline void Connect(int socket, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

inline UniqueFd ConnectTo(std::uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Connect(socket.get(), port);
  return socket;
}

// As a TlsSession needs it.
inline UniqueFd WithoutBlocking(UniqueFd socket) {
  EXPECT_EQ(::fcntl(socket.get(), F_SETFL, O_NONBLOCK), 0);
  return socket;
}

// The end of a node that writes to its connection whatever a test wants.
class RawNode {
 public:
  // The end that connects to `port`.
  RawNode(std::uint16_t port, const NodeCertificates& certificates)
      : RawNode(ConnectTo(port), TlsSession::End::kClient, certificates) {
    while (session_->Handshake() == TlsSession::Outcome::kBlocked) AwaitInput();
  }
  // Either end of a connected socket. Call Handshake until it is done.
  RawNode(UniqueFd socket, TlsSession::End end, const NodeCertificates& certificates)
      : context_(Take(MakeTlsContext(certificates))),
        session_(Take(TlsSession::Create(*context_, WithoutBlocking(std::move(socket)), end))) {}
  TlsSession::Outcome Handshake() { return session_->Handshake(); }
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
  void AwaitEnd() { EXPECT_EQ(Hear(), std::nullopt); }
  // Waits for the next byte that the other node says; nothing: it has closed the connection.
  std::optional<std::byte> Hear() {
    std::byte byte{};
    for (;;) {
      const TlsSession::ReadBytes read = session_->Read(std::span(&byte, 1));
      if (read.outcome == TlsSession::Outcome::kDone) return byte;
      if (read.outcome == TlsSession::Outcome::kEnded) return std::nullopt;
      AwaitInput();
    }
  }
  std::uint32_t number() const { return session_->number(); }
  bool was_closed() const { return session_->was_closed(); }

 private:
  void AwaitInput() {
    pollfd ready{.fd = session_->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&ready, 1, 30'000), 1);
  }
  TlsContext context_;
  std::unique_ptr<TlsSession> session_;
};

// The port of a node that accepts connections one by one, and does with them whatever a test wants.
class RawListener {
 public:
  RawListener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(socket_.get(), 1), 0);
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  std::uint16_t port() const { return port_; }
  bool IsAsked() const {
    pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 0) == 1;
  }
  // Waits for the next connection, and for its handshake.
  std::unique_ptr<RawNode> Accept() const {
    auto node =
        std::make_unique<RawNode>(UniqueFd(::accept(socket_.get(), nullptr, nullptr)),
                                  TlsSession::End::kServer, Certificates('a'));
    while (node->Handshake() == TlsSession::Outcome::kBlocked) std::this_thread::yield();
    return node;
  }

 private:
  UniqueFd socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
};

struct Made {
  std::string host = "127.0.0.1";
  NodeCertificates certificates = Certificates('a');
  std::uint32_t connections_max = 256;
  std::int64_t idle_ms = kIdleMs;
  std::int64_t keep_ms = kKeepMs;
  std::int64_t handshake_ms = 30'000;
  io::Clock* clock = nullptr;  // null: that of all
};

class PayloadConnectionsTest : public ::testing::Test {
 protected:
  std::unique_ptr<PayloadConnections> Make(NodeRank self, const Made& made = {}) {
    std::map<NodeRank, std::string> hosts;
    for (const NodeRank node : {kAsking, kSending, kThird, kFourth}) {
      if (node != self) hosts[node] = "127.0.0.1";
    }
    return Take(PayloadConnections::Create({.self = self,
                                            .host = made.host,
                                            .hosts = std::move(hosts),
                                            .certificates = made.certificates,
                                            .connections_max = made.connections_max,
                                            .idle_ms = made.idle_ms,
                                            .keep_ms = made.keep_ms,
                                            .handshake_ms = made.handshake_ms},
                                           made.clock != nullptr ? *made.clock : clock_));
  }
  // Returns when the thread of `connections` has looked at the clock and at all sockets once more.
  static void AwaitLook(PayloadConnections& connections) {
    for (int i = 0; i < 2; ++i) {
      OwnedPayload nothing({1}, 1, 1);
      Outcomes outcome(1);
      connections.Send(NodeRank(7), {.tag = 1}, nothing.payload, outcome.Ended());
      EXPECT_EQ(AwaitError(outcome), ErrorCode::kUnavailable);
    }
  }
  // The place that `asking` names to a node, where nothing is awaited any more.
  static PayloadPlace PlaceOf(PayloadConnections& asking, NodeRank node) {
    Posted posted(asking, node, {1});
    asking.Cancel(posted.place.tag);
    AwaitError(posted.outcomes);  // perhaps it has ended with a connection that was replaced
    return posted.place;
  }
  // Connects as `node`, and waits until `asking` expects its bytes by this connection.
  static std::unique_ptr<RawNode> ConnectRaw(PayloadConnections& asking, NodeRank node) {
    auto raw = std::make_unique<RawNode>(asking.port(), Certificates('a'));
    raw->SayRank(node);
    while (PlaceOf(asking, node).connection != raw->number()) std::this_thread::yield();
    AwaitLook(asking);
    return raw;
  }
  // Waits until `from` can send to `to`, and has sent the one payload that goes first.
  static void Connect(PayloadConnections& from, NodeRank from_rank, PayloadConnections& to,
                      NodeRank to_rank) {
    for (bool has_sent = false; !has_sent;) {
      Posted posted(to, from_rank, {1});
      has_sent = from.CanSend(to_rank, posted.place);
      if (has_sent) {
        OwnedPayload first({1}, 1, 1);
        Outcomes outcome(1);
        from.Send(to_rank, posted.place, first.payload, outcome.Ended());
        FOREBAY_EXPECT_OK(outcome.Await());
        FOREBAY_EXPECT_OK(posted.outcomes.Await());
      } else {
        to.Cancel(posted.place.tag);
        AwaitError(posted.outcomes);
        std::this_thread::yield();
      }
    }
    while (!from.CanSend(to_rank, PlaceOf(to, from_rank))) std::this_thread::yield();
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
  io::ManualClock manual_;
  std::unique_ptr<PayloadConnections> asking_ = Make(kAsking);
  std::unique_ptr<PayloadConnections> sending_ = Make(kSending);
};

}  // namespace forebay::peer::payload_connections_test
