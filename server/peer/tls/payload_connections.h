// PayloadConnections: a PayloadCarrier by encrypted connections of its own, beside those of gRPC,
// whose TLS costs three times as much for each byte. A node accepts connections at a port that it
// names in its requests. A node that is asked connects there, and from then on sends the bytes of
// its answers that way; until then, and whenever there is no connection, they go over gRPC. So a
// pair of nodes has one connection in each direction, and none if it is not used.
//
// The request names the connection by which the bytes are to come. With its end the receive ends,
// too, so nothing is ever awaited that was lost with a connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"
#include "server/io/clock.h"
#include "server/peer/job_certificates.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/tls/payload_connection.h"
#include "server/peer/tls/posted_receives.h"
#include "server/peer/tls/tls_session.h"
#include "server/stage/growing_pause.h"

namespace forebay::peer {

struct PayloadConnectionsOptions {
  NodeRank self = NodeRank(0);
  std::string host;  // a numeric address, where this node listens
  // The first free one of these ports is used; 0: one that the kernel chooses.
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  // The other nodes. One whose host is no numeric address is not connected to.
  std::map<NodeRank, std::string> hosts = {};
  NodeCertificates certificates = {};  // of this node
  std::int64_t idle_ms = 120'000;      // a connection that sends nothing is closed after this time
  std::int64_t handshake_ms = 5'000;   // and one that is not open after that
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

  PayloadPlace Receive(NodeRank node, const Payload& payload, Ended ended) override;
  void Cancel(std::uint32_t tag) override;
  void Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
            Ended ended) override;
  bool CanSend(NodeRank node, const PayloadPlace& place) override;

 private:
  PayloadConnections(PayloadConnectionsOptions options, TlsContext context, io::Clock& clock)
      : options_(std::move(options)), context_(std::move(context)), clock_(clock) {}
  using Command = std::function<void()>;
  // A connection as the thread sees it.
  struct Open {
    std::unique_ptr<PayloadConnection> connection;
    OutgoingPayloads* outgoing = nullptr;  // `connection`, if it is one
    NodeRank node = NodeRank(0);           // of an outgoing one
    std::uint32_t events = 0;              // that epoll looks for
    bool has_turn = false;                 // at once
    std::uint64_t moved_bytes = 0;         // when it was looked at last
    std::int64_t idle_since_ns = 0;
  };
  // An outgoing connection as other threads see it.
  struct Way {
    bool is_wanted = false;  // it is being made, or open
    std::uint16_t port = 0;
    std::uint32_t number = 0;  // 0: not open
    std::int64_t next_try_ns = 0;
    stage::GrowingPause pause = {};
    bool has_failed = false;  // since it was open, and the log has said so
  };

  Status Listen();
  void Execute(Command command);
  void Run();
  bool RunCommands();
  void Accept();
  void SetDeaf(bool is_deaf);
  bool OpenIncoming(NodeRank node, IncomingPayloads& connection);
  void Connect(NodeRank node, std::uint16_t port);
  void Add(Open open, std::uint32_t events);
  Open* OutgoingTo(NodeRank node);
  void WorkOn(int fd);
  void Look();
  void Close(int fd, const std::string& why);
  void NoteClosed(NodeRank node, const std::string& why);

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
  std::map<NodeRank, Way> ways_ FOREBAY_GUARDED_BY(mutex_);

  // Only the thread uses these, and others after its end.
  std::map<int, Open> open_;  // by descriptor
  std::int64_t look_ns_ = 0;  // when Look was called last
  bool is_deaf_ = false;      // nothing is accepted now
  std::int64_t said_ns_ = 0;  // when the log has last named a connection that was refused
};

}  // namespace forebay::peer
