// PayloadConnections: a PayloadCarrier by encrypted connections of its own, beside those of gRPC,
// whose TLS costs three times as much for each byte. A node accepts connections at a port that it
// names in its requests. A node that is asked connects there, and from then on sends the bytes of
// its answers that way; until then, and whenever there is no connection, they go over gRPC. So a
// pair of nodes has one connection in each direction, and none if it is not used. The number of
// connections has a limit, whatever the size of the job: one that was not used for a while is
// closed to make room, and without room the bytes go over gRPC.
//
// The request names the connection by which the bytes are to come. With its end the receive ends,
// too, so nothing is ever awaited that was lost with a connection. Only the node that asks closes a
// connection which works, and only if it awaits nothing by it, so no answer is lost that way; the
// other node may ask it to. Only SetHost closes one to a node that is not in its place any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"
#include "server/io/clock.h"
#include "server/peer/job_certificates.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/tls/payload_connection.h"
#include "server/peer/tls/posted_receives.h"
#include "server/peer/tls/tls_session.h"
#include "server/peer/tls/use_order.h"
#include "server/stage/growing_pause.h"

namespace forebay::peer {

struct PayloadConnectionsOptions {
  NodeRank self = NodeRank(0);
  std::string host;  // a numeric address, where this node listens
  // The first free one of these ports is used; 0: one that the kernel chooses.
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  // The other nodes (SetHost changes them). One whose host is no numeric address is not connected
  // to.
  std::map<NodeRank, std::string> hosts = {};
  NodeCertificates certificates = {};  // of this node
  // How many connections this node may have made, how many it may have accepted from nodes that
  // have said who they are, and how many it may have accepted from others; each at least 1.
  std::uint32_t connections_max = limits::kPeerPayloadConnectionsMax;
  // A connection that brings nothing for this time is closed.
  std::int64_t idle_ms = limits::kPeerIdleMs;
  // After this time, at least 1, it is closed if there is no room for another one. Handshakes cost
  // CPU time, so nodes that are asked in turn, each for a moment, do not take it from each other.
  std::int64_t keep_ms = 10'000;
  std::int64_t handshake_ms = 5'000;  // a connection that is not open after this time is closed
};

// Thread-safe.
class PayloadConnections final : public PayloadCarrier {
 public:
  // Listens from now on, and starts the thread that moves all bytes. The clock is borrowed. Errors:
  // kUnavailable (the address cannot be used), those of MakeTlsContext.
  static Result<std::unique_ptr<PayloadConnections>> Create(PayloadConnectionsOptions options,
                                                            io::Clock& clock);
  ~PayloadConnections() override;
  // Closes all connections: what is under way ends with kUnavailable. Nothing is connected or
  // accepted any more.
  void Stop();

  std::uint16_t port() const { return port_; }

  // From now on the node with this rank is at `host`, and may be another node. A connection to the
  // one before is closed, with what is under way on it; what had failed there does not count. No
  // effect if it has this host already.
  void SetHost(NodeRank node, const std::string& host);

  PayloadPlace Receive(NodeRank node, const Payload& payload, Ended ended) override;
  void Cancel(std::uint32_t tag) override;
  void Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
            Ended ended) override;
  bool CanSend(NodeRank node, const PayloadPlace& place) override;

 private:
  PayloadConnections(PayloadConnectionsOptions options, TlsContext context, io::Clock& clock)
      : options_(std::move(options)),
        context_(std::move(context)),
        clock_(clock),
        hosts_(options_.hosts) {}
  using Command = std::function<void()>;
  // A connection as the thread sees it.
  struct Open {
    std::unique_ptr<PayloadConnection> connection;
    // One of them is `connection`, and the other one null.
    OutgoingPayloads* outgoing = nullptr;
    IncomingPayloads* incoming = nullptr;
    NodeRank node = NodeRank(0);  // of an outgoing one
    std::uint32_t events = 0;     // that epoll looks for
    bool has_turn = false;        // its descriptor is in turns_
    bool has_carried = false;     // a payload, and Way was told so
    bool has_no_room = false;     // an incoming one, of a node of the job
  };
  enum class Ending : std::uint8_t { kLost, kOnPurpose };
  // An outgoing connection as other threads see it.
  struct Way {
    bool is_wanted = false;  // it is being made, or open
    std::uint16_t port = 0;
    std::uint32_t number = 0;  // 0: not open
    std::int64_t next_try_ns = 0;
    // Grows until a payload has come: a firewall may let handshakes through, and no more.
    stage::GrowingPause pause = stage::GrowingPause(kRetryNsMax);
    stage::GrowingPause refused_pause = stage::GrowingPause();  // after the other node had no room
    std::optional<std::int64_t> tried_ns = {};  // a payload was sent first by the one that is open
    bool has_carried = false;  // a payload, by the connection that is open
    bool has_failed = false;   // since a payload has come
  };
  static constexpr std::int64_t kRetryNsMax = 60'000'000'000;

  bool MayInvite();
  void Execute(Command command);
  void Run();
  bool RunCommands();
  void Accept();
  std::size_t Strangers() const;
  void SetDeaf(bool is_deaf);
  bool OpenIncoming(NodeRank node, IncomingPayloads& connection);
  bool MakeRoomForIncoming();
  void CloseIfUnused(int fd);
  void Connect(NodeRank node, std::uint16_t port);
  void AskForRoom();
  void Add(Open open, std::uint32_t events);
  void GiveTurn(int fd, Open& open);
  void WorkOn(int fd);
  void NoteProgress(int fd, Open& open, bool was_open);
  void CloseWhatIsDue();
  int WaitMs() const;
  void PublishRoom();
  void Close(int fd, const std::string& why, Ending ending = Ending::kLost);
  bool IsTimeToSay(std::optional<std::int64_t>& said_ns) const;
  void NoteClosed(NodeRank node, const std::string& why, Ending ending = Ending::kLost);

  const PayloadConnectionsOptions options_;
  const TlsContext context_;  // outlives the connections
  io::Clock& clock_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  UniqueFd epoll_;
  UniqueFd wake_;  // an eventfd
  PostedReceives receives_;
  std::thread thread_;

  Mutex mutex_;
  std::vector<Command> commands_ FOREBAY_GUARDED_BY(mutex_);
  bool must_stop_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool has_stopped_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::map<NodeRank, std::string> hosts_ FOREBAY_GUARDED_BY(mutex_);  // of the other nodes
  std::map<NodeRank, Way> ways_ FOREBAY_GUARDED_BY(mutex_);
  // From when on there is room for another connection, as far as the thread knows.
  std::atomic<std::int64_t> incoming_room_ns_ = 0;
  std::atomic<std::int64_t> outgoing_room_ns_ = 0;
  // From when on another node may be invited to take the place of one that is unused.
  std::atomic<std::int64_t> next_invitation_ns_ = 0;

  // Only the thread uses these, and others after its end.
  std::map<int, Open> open_;  // by descriptor
  std::vector<int> turns_;    // connections that can move bytes at once
  UseOrder handshakes_;       // connections that are not open yet, by their beginning
  UseOrder incoming_;         // that are open
  UseOrder outgoing_;         // all
  std::map<NodeRank, int> incoming_of_node_;
  std::map<NodeRank, int> outgoing_of_node_;
  std::optional<std::int64_t> deaf_until_ns_;  // nothing is accepted now
  // When the log has last named a connection that was refused, and one that was lost.
  std::optional<std::int64_t> said_refused_ns_;
  std::optional<std::int64_t> said_lost_ns_;
};

}  // namespace forebay::peer
