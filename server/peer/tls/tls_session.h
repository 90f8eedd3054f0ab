// TlsSession: one encrypted connection between two nodes (TLS 1.3) on a socket that never blocks.
// Both ends show a certificate of a node of the job; a client's is refused (job_certificates.h).
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"
#include "server/peer/job_certificates.h"
#include "server/peer/openssl_objects.h"

namespace forebay::peer {

using TlsContext = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;

// What all sessions of a node have in common, as server and as client. kInternal: OpenSSL does not
// take the certificates.
Result<TlsContext> MakeTlsContext(const NodeCertificates& certificates);

// Not thread-safe.
class TlsSession {
 public:
  enum class End : bool { kClient, kServer };
  // `context` must outlive the session. The socket may still be connecting.
  static Result<std::unique_ptr<TlsSession>> Create(SSL_CTX& context, UniqueFd socket, End end);

  // Each of these does as much as is possible at once. kBlocked: call it again when the socket is
  // ready. kEnded: the connection is of no use any more, and error() says why.
  enum class Outcome : std::uint8_t { kDone, kBlocked, kEnded };
  // Call it first, until it is done.
  Outcome Handshake();
  struct ReadBytes {
    Outcome outcome;
    std::size_t bytes;  // at least 1 if the outcome is kDone
  };
  // Decrypts what has come to `memory`, which is not empty.
  ReadBytes Read(std::span<std::byte> memory);
  // Encrypts `bytes`, and keeps them until Flush has sent them; `bytes` is not needed any more.
  Outcome Write(std::span<const std::byte> bytes);
  Outcome Flush();
  // Tells the other end, if the socket takes it at once, that this one closes on purpose.
  void SayEnd();

  std::size_t unsent_bytes() const { return unsent_.size() - sent_; }
  int fd() const { return socket_.get(); }
  const std::string& error() const { return error_; }
  // Whether the other end has said that it closes on purpose.
  bool was_closed() const { return was_closed_; }
  // A number that both ends compute from the keys of the session, after the handshake; not 0.
  std::uint32_t number() const { return number_; }

 private:
  explicit TlsSession(UniqueFd socket) : socket_(std::move(socket)) {}
  static const BIO_METHOD* OutputMethod();
  static int Append(BIO* output, const char* data, int bytes);
  static std::vector<char>& SpareMemory();
  bool ComputeNumber();
  Outcome OutcomeOf(int returned, const char* what);
  Outcome Fail(std::string error);

  UniqueFd socket_;
  std::unique_ptr<SSL, Freed<SSL_free>> ssl_;
  std::vector<char> unsent_;  // encrypted; has memory only while it has bytes
  std::size_t sent_ = 0;      // of unsent_
  std::uint64_t bytes_with_key_ = 0;
  std::uint32_t number_ = 0;
  bool was_closed_ = false;
  std::string error_;
};

}  // namespace forebay::peer
