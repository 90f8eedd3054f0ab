// Bytes go from where the rows lie through OpenSSL to the socket, and from the socket through
// OpenSSL to where the rows belong. The lengths that the other node names are compared with those
// of the receive; no memory is made for them.
#include "server/peer/tls/payload_connection.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace forebay::peer {
namespace {

// Encrypted bytes that are sent by one system call, about.
constexpr std::size_t kSendBytes = 256 * 1024;
constexpr std::size_t kEncryptBytes = 64 * 1024;
constexpr std::size_t kRecordBytes = 16 * 1024;  // of TLS

std::uint64_t BytesOf(std::span<const std::span<std::byte>> pieces) {
  std::uint64_t bytes = 0;
  for (const std::span<std::byte> piece : pieces) bytes += piece.size();
  return bytes;
}

// Where bytes are decrypted to that nobody waits for. One for all connections, because one thread
// uses them, and nobody reads it.
std::span<std::byte> ThrownAway() {
  thread_local std::vector<std::byte> memory(16 * 1024);
  return memory;
}

}  // namespace

PayloadConnection::Wants PayloadConnection::Work() {
  using Outcome = TlsSession::Outcome;
  if (!is_secure_) {
    const Outcome outcome = session_->Handshake();
    if (outcome == Outcome::kEnded) return Wants::kEnd;
    if (outcome == Outcome::kBlocked) {
      return session_->unsent_bytes() > 0 ? Wants::kOutput : Wants::kInput;
    }
    is_secure_ = true;
  }
  return Move();
}

PayloadConnection::Wants IncomingPayloads::Move() {
  // Only the handshake and a confirmation are sent, and perhaps not all of it yet.
  if (session().Flush() == TlsSession::Outcome::kEnded) return Wants::kEnd;
  for (std::size_t moved = 0; moved < kTurnBytes;) {
    const TlsSession::ReadBytes read = session().Read(NextMemory());
    if (read.outcome == TlsSession::Outcome::kEnded) return Wants::kEnd;
    if (read.outcome == TlsSession::Outcome::kBlocked) {
      return session().unsent_bytes() > 0 ? Wants::kOutput : Wants::kInput;
    }
    CountMoved(read.bytes);
    moved += read.bytes;
    if (!Advance(read.bytes)) return Wants::kEnd;
  }
  // OpenSSL may hold bytes that the socket has no more.
  return Wants::kAnotherTurn;
}

std::span<std::byte> IncomingPayloads::NextMemory() {
  if (!has_frame_) {
    const std::size_t head = is_open() ? PayloadFrame::kBytes : PayloadFrame::kRankBytes;
    return std::span(head_).first(head).subspan(head_bytes_);
  }
  // A receive that was cancelled meanwhile has lost its memory.
  if (PostedReceives::IsAwaited(arriving_)) {
    // Bytes are left, so there is a piece that they belong in.
    while (piece_offset_ == arriving_.pieces[piece_].size()) {
      ++piece_;
      piece_offset_ = 0;
    }
    return arriving_.pieces[piece_].subspan(piece_offset_);
  }
  return ThrownAway().first(std::min<std::uint64_t>(left_, ThrownAway().size()));
}

bool IncomingPayloads::Advance(std::size_t bytes) {
  if (has_frame_) {
    left_ -= bytes;
    piece_offset_ += bytes;
    EndMessageIfComplete();
    return true;
  }
  head_bytes_ += bytes;
  if (!is_open() && head_bytes_ == PayloadFrame::kRankBytes) {
    head_bytes_ = 0;
    node_ = NodeRank(ByteReader(head_).ReadLe<std::uint32_t>());
    if (!opened_(node_, *this)) {
      Fail(fmt::format("it is not to send as node {}", node_.value()));
      return false;
    }
    SetOpen();
  } else if (head_bytes_ == PayloadFrame::kBytes) {
    head_bytes_ = 0;
    BeginMessage();
  }
  return true;
}

void IncomingPayloads::BeginMessage() {
  const PayloadFrame frame = PayloadFrame::Read(head_);
  has_frame_ = true;
  is_to_be_closed_ |= frame.tag == 0;
  left_ = frame.bytes;
  piece_ = 0;
  piece_offset_ = 0;
  arriving_ = receives_.Begin(number(), frame.tag, frame.message, frame.bytes);
  EndMessageIfComplete();
}

void IncomingPayloads::EndMessageIfComplete() {
  if (left_ > 0) return;
  has_frame_ = false;
  const PostedReceives::Arriving arriving = std::exchange(arriving_, {});
  if (!PostedReceives::IsAwaited(arriving) || !receives_.End(arriving, {})) return;
  // The next call of Flush sends it.
  if (!std::exchange(has_confirmed_, true)) (void)session().Write({&PayloadFrame::kCarried, 1});
}

void IncomingPayloads::Close(const std::string& why) {
  if (is_open()) receives_.EndConnection(node_, number(), why);
}

PayloadConnection::Wants OutgoingPayloads::Move() {
  using Outcome = TlsSession::Outcome;
  if (LooksBroken()) return Wants::kEnd;
  SetOpen();
  for (std::size_t moved = 0; moved < kTurnBytes;) {
    const Outcome flushed = session().Flush();
    if (flushed == Outcome::kEnded) return Wants::kEnd;
    if (flushed == Outcome::kBlocked) return Wants::kOutput;
    if (queue_.empty() && has_said_rank_) {
      gathered_.shrink_to_fit();  // an idle connection keeps no memory
      return Wants::kInput;
    }
    while (session().unsent_bytes() < kSendBytes && (!queue_.empty() || !has_said_rank_)) {
      if (!EncryptSome()) return Wants::kEnd;
    }
    CountMoved(session().unsent_bytes());
    moved += session().unsent_bytes();
  }
  return Wants::kAnotherTurn;
}

// The other node says once that a payload has come. Whatever else can be read means the end of the
// connection.
bool OutgoingPayloads::LooksBroken() {
  for (;;) {
    std::byte byte{};
    const TlsSession::ReadBytes read = session().Read(std::span(&byte, 1));
    if (read.outcome != TlsSession::Outcome::kDone) {
      return read.outcome == TlsSession::Outcome::kEnded;
    }
    if (byte != PayloadFrame::kCarried || std::exchange(has_carried_, true)) {
      Fail("the other node has sent something");
      return true;
    }
  }
}

void OutgoingPayloads::AskToClose() {
  ByteWriter head;
  PayloadFrame{}.Write(head);
  // An error is found by the next call of Work.
  (void)session().Write(head.bytes());
}

// Encrypts the next bytes of the first payload, or gathers them if they are few. A message has
// ended when its memory is not needed any more.
bool OutgoingPayloads::EncryptSome() {
  GatherHead();
  // The head may have filled the record, and more.
  if (gathered_.size() >= kRecordBytes && !WriteGathered()) return false;
  if (queue_.empty()) return WriteGathered();
  Sent& sent = queue_.front();
  const std::size_t end = sent.payload.ends[message_];
  if (piece_ < end) {
    const std::span<const std::byte> rest = sent.payload.pieces[piece_].subspan(piece_offset_);
    std::span<const std::byte> part = rest.first(std::min(rest.size(), kEncryptBytes));
    // A copy costs less than a record for a few bytes.
    const std::size_t room = kRecordBytes - gathered_.size();
    if (!gathered_.empty() || rest.size() < kRecordBytes) {
      part = rest.first(std::min(rest.size(), room));
      gathered_.insert(gathered_.end(), part.begin(), part.end());
      if (gathered_.size() == kRecordBytes && !WriteGathered()) return false;
    } else if (session().Write(part) != TlsSession::Outcome::kDone) {
      return false;
    }
    piece_offset_ += part.size();
    if (part.size() < rest.size()) return true;
    piece_offset_ = 0;
    if (++piece_ < end) return true;
  }
  has_written_frame_ = false;
  const std::size_t message = message_++;
  sent.ended(message, {});
  if (message_ == sent.payload.ends.size()) {
    queue_.pop_front();
    message_ = 0;
    piece_ = 0;
  }
  return !queue_.empty() || WriteGathered();
}

// Adds what stands before the next bytes, if anything does.
void OutgoingPayloads::GatherHead() {
  ByteWriter head;
  if (!std::exchange(has_said_rank_, true)) head.Le<std::uint32_t>(self_.value());
  if (!queue_.empty() && !std::exchange(has_written_frame_, true)) {
    const Sent& sent = queue_.front();
    const std::size_t end = sent.payload.ends[message_];
    const PayloadFrame frame{.tag = sent.tag,
                             .message = static_cast<std::uint32_t>(message_),
                             .bytes = BytesOf(std::span(sent.payload.pieces)
                                                  .subspan(piece_, end - piece_))};
    frame.Write(head);
  }
  const auto bytes = head.bytes();
  gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
}

bool OutgoingPayloads::WriteGathered() {
  if (gathered_.empty()) return true;
  const bool is_written = session().Write(gathered_) == TlsSession::Outcome::kDone;
  gathered_.clear();
  return is_written;
}

void OutgoingPayloads::Close(const std::string& why) {
  const Error error(ErrorCode::kUnavailable,
                    fmt::format("the connection for bytes of rows has ended: {}", why));
  // Taken out first, because nothing is sent any more.
  std::deque<Sent> left = std::exchange(queue_, {});
  std::size_t first = message_;
  for (const Sent& sent : left) {
    for (std::size_t i = first; i < sent.payload.ends.size(); ++i) sent.ended(i, error);
    first = 0;
  }
}

}  // namespace forebay::peer
