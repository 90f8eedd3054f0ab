// PayloadConnection: one end of a connection that brings bytes of rows from one node to another.
// The node that sends has made the connection (OutgoingPayloads), and the other one has accepted it
// (IncomingPayloads). Only the thread of PayloadConnections uses these objects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/tls/payload_frame.h"
#include "server/peer/tls/posted_receives.h"
#include "server/peer/tls/tls_session.h"

namespace forebay::peer {

class PayloadConnection {
 public:
  explicit PayloadConnection(std::unique_ptr<TlsSession> session)
      : session_(std::move(session)) {}
  virtual ~PayloadConnection() = default;
  PayloadConnection(const PayloadConnection&) = delete;
  PayloadConnection& operator=(const PayloadConnection&) = delete;

  enum class Wants : std::uint8_t {
    kInput,        // a call of Work when something has come
    kOutput,       // likewise, or when more can be sent
    kAnotherTurn,  // a call of Work when other connections have had theirs
    kEnd,          // nothing: the connection is of no use any more; error() says why
  };
  // Moves what can be moved at once, but at most about kTurnBytes, so that each connection has its
  // turn.
  Wants Work();
  // Tells the other node that this end closes on purpose. Only Close may be called then.
  void SayEnd() { session_->SayEnd(); }
  // Ends what is under way with kUnavailable. Nothing else may be called then.
  virtual void Close(const std::string& why) = 0;

  int fd() const { return session_->fd(); }
  std::uint32_t number() const { return session_->number(); }
  const std::string& error() const { return error_.empty() ? session_->error() : error_; }
  std::uint64_t moved_bytes() const { return moved_bytes_; }
  bool has_unsent_bytes() const { return session_->unsent_bytes() > 0; }
  // Whether the other node has closed the connection on purpose.
  bool was_closed() const { return session_->was_closed(); }
  // Whether payloads can travel: the handshake is done, and the other node is known.
  bool is_open() const { return is_open_; }

 protected:
  static constexpr std::size_t kTurnBytes = 1 << 20;

  virtual Wants Move() = 0;  // as Work, after the handshake
  TlsSession& session() { return *session_; }
  void CountMoved(std::size_t bytes) { moved_bytes_ += bytes; }
  void SetOpen() { is_open_ = true; }
  Wants Fail(std::string why) {
    error_ = std::move(why);
    return Wants::kEnd;
  }

 private:
  const std::unique_ptr<TlsSession> session_;
  bool is_secure_ = false;  // the handshake is done
  bool is_open_ = false;
  std::uint64_t moved_bytes_ = 0;
  std::string error_;
};

class IncomingPayloads final : public PayloadConnection {
 public:
  // Whether the node may send with the connection that has this number, and its messages are to be
  // looked for in `receives`.
  using Opened = std::function<bool(NodeRank node, IncomingPayloads& connection)>;
  // `receives` is borrowed.
  IncomingPayloads(std::unique_ptr<TlsSession> session, PostedReceives& receives, Opened opened)
      : PayloadConnection(std::move(session)), receives_(receives), opened_(std::move(opened)) {}
  void Close(const std::string& why) override;
  NodeRank node() const { return node_; }
  // Whether the node has asked to close the connection since the last call.
  bool TakeCloseRequest() { return std::exchange(is_to_be_closed_, false); }

 private:
  Wants Move() override;
  std::span<std::byte> NextMemory();
  bool Advance(std::size_t bytes);
  void BeginMessage();
  void EndMessageIfComplete();

  PostedReceives& receives_;
  const Opened opened_;
  NodeRank node_ = NodeRank(0);  // that sends, from its first bytes on
  // Rank of the node, and then the frame of each message, as far as it has come.
  std::array<std::byte, PayloadFrame::kBytes> head_ = {};
  std::size_t head_bytes_ = 0;
  bool has_frame_ = false;  // the bytes of a message follow
  bool is_to_be_closed_ = false;
  bool has_confirmed_ = false;  // that a whole payload has come
  PostedReceives::Arriving arriving_;
  std::uint64_t left_ = 0;         // bytes of the message
  std::size_t piece_ = 0;          // in which the next one belongs
  std::size_t piece_offset_ = 0;
};

class OutgoingPayloads final : public PayloadConnection {
 public:
  OutgoingPayloads(std::unique_ptr<TlsSession> session, NodeRank self)
      : PayloadConnection(std::move(session)), self_(self) {}
  struct Sent {
    std::uint32_t tag = 0;
    Payload payload;
    PayloadCarrier::Ended ended;
  };
  void Add(Sent sent) { queue_.push_back(std::move(sent)); }
  void Close(const std::string& why) override;
  bool is_idle() const { return queue_.empty() && !has_unsent_bytes(); }
  // Asks the other node to close the connection, which must be open and idle. It does so with the
  // next call of Work, and the other node does it unless it awaits something by this connection.
  void AskToClose();
  // Whether a whole payload has come to the other node.
  bool has_carried() const { return has_carried_; }

 private:
  Wants Move() override;
  bool EncryptSome();
  void GatherHead();
  bool WriteGathered();
  bool LooksBroken();

  const NodeRank self_;
  // Heads and short pieces, which become one record of TLS together.
  std::vector<std::byte> gathered_;
  bool has_said_rank_ = false;
  bool has_carried_ = false;
  std::deque<Sent> queue_;
  // How far the first payload of the queue has come.
  std::size_t message_ = 0;
  bool has_written_frame_ = false;
  std::size_t piece_ = 0;
  std::size_t piece_offset_ = 0;
};

}  // namespace forebay::peer
