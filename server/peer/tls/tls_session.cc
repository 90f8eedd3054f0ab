// OpenSSL reads from the socket itself, a large piece at a time. It writes its records of 16 KiB to
// memory, from which many are sent at once: a system call for each would cost as much as to encrypt
// it.
#include "server/peer/tls/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "server/peer/openssl_objects.h"

namespace forebay::peer {
namespace {

// AES with 128 bits is as strong as the certificates' keys (Ed25519), and faster than with 256.
constexpr char kTlsCiphers[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
constexpr std::size_t kTlsReadBytes = 128 * 1024;
// A new key long before the 2^24.5 records that RFC 8446 (5.5) allows for one with AES-GCM.
constexpr std::uint64_t kBytesWithKeyMax = std::uint64_t{64} << 30;
constexpr std::string_view kNumberLabel = "EXPORTER-forebay-payload-connection";

std::string LastTlsError() {
  const unsigned long code = ERR_get_error();
  std::array<char, 256> text{};
  ERR_error_string_n(code, text.data(), text.size());
  ERR_clear_error();
  return code == 0 ? "no reason given" : text.data();
}

OwnedBio InputOf(const std::string& text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

OwnedCertificate ReadCertificate(const std::string& text) {
  const OwnedBio input = InputOf(text);
  return OwnedCertificate(input ? PEM_read_bio_X509(input.get(), nullptr, nullptr, nullptr)
                                : nullptr);
}

bool UseCertificates(SSL_CTX* context, const NodeCertificates& certificates) {
  const OwnedCertificate authority = ReadCertificate(certificates.authority);
  const OwnedCertificate node = ReadCertificate(certificates.node);
  const OwnedBio input = InputOf(certificates.key);
  const OwnedKey key(input ? PEM_read_bio_PrivateKey(input.get(), nullptr, nullptr, nullptr)
                           : nullptr);
  return authority && node && key &&
         X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) > 0 &&
         SSL_CTX_use_certificate(context, node.get()) > 0 &&
         SSL_CTX_use_PrivateKey(context, key.get()) > 0;
}

}  // namespace

Result<TlsContext> MakeTlsContext(const NodeCertificates& certificates) {
  TlsContext context(SSL_CTX_new(TLS_method()));
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) <= 0 ||
      SSL_CTX_set_ciphersuites(context.get(), kTlsCiphers) <= 0 ||
      !UseCertificates(context.get(), certificates) ||
      // The names of nodes are in no certificate, so all have the same name. A client's is another.
      X509_VERIFY_PARAM_set1_host(SSL_CTX_get0_param(context.get()), kCertifiedName, 0) <= 0) {
    return Error(ErrorCode::kInternal,
                 fmt::format("TLS for the bytes of rows: {}", LastTlsError()));
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // A session is never resumed.
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kTlsReadBytes);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);  // idle connections keep no memory
  return context;
}

int TlsSession::Append(BIO* output, const char* data, int bytes) {
  auto& unsent = static_cast<TlsSession*>(BIO_get_data(output))->unsent_;
  if (unsent.capacity() == 0) unsent.swap(SpareMemory());
  unsent.insert(unsent.end(), data, data + bytes);
  return bytes;
}

// Memory for what the next session encrypts. Sessions that have sent everything have none of their
// own, and one thread moves the bytes of all.
std::vector<char>& TlsSession::SpareMemory() {
  thread_local std::vector<char> memory;
  return memory;
}

const BIO_METHOD* TlsSession::OutputMethod() {
  // Lives as long as the process.
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "forebay");
    BIO_meth_set_write(made, &TlsSession::Append);
    // Nothing is held back, so a flush has nothing to do.
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
    return made;
  }();
  return kMethod;
}

Result<std::unique_ptr<TlsSession>> TlsSession::Create(SSL_CTX& context, UniqueFd socket,
                                                       End end) {
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(socket)));
  session->ssl_.reset(SSL_new(&context));
  SSL* const ssl = session->ssl_.get();
  BIO* const input = BIO_new_socket(session->fd(), BIO_NOCLOSE);
  BIO* const output = BIO_new(OutputMethod());
  if (ssl == nullptr || input == nullptr || output == nullptr) {
    BIO_free(input);
    BIO_free(output);
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("no memory for a TLS connection: {}", LastTlsError()));
  }
  BIO_set_data(output, session.get());
  BIO_set_init(output, 1);
  SSL_set_bio(ssl, input, output);  // owns both
  if (end == End::kServer) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
  }
  return session;
}

TlsSession::Outcome TlsSession::Fail(std::string error) {
  if (error_.empty()) error_ = std::move(error);
  return Outcome::kEnded;
}

TlsSession::Outcome TlsSession::OutcomeOf(int returned, const char* what) {
  const int saved_errno = errno;
  switch (SSL_get_error(ssl_.get(), returned)) {
    case SSL_ERROR_NONE:
      return Outcome::kDone;
    case SSL_ERROR_WANT_READ:
      return Outcome::kBlocked;
    case SSL_ERROR_ZERO_RETURN:
      was_closed_ = true;
      return Fail("the other node has closed the connection");
    case SSL_ERROR_SYSCALL:
      return Fail(fmt::format("{}: {}", what,
                              saved_errno == 0 ? "the connection was lost"
                                               : std::strerror(saved_errno)));
    default:
      return Fail(fmt::format("{}: {}", what, LastTlsError()));
  }
}

TlsSession::Outcome TlsSession::Handshake() {
  ERR_clear_error();
  errno = 0;
  const Outcome outcome = OutcomeOf(SSL_do_handshake(ssl_.get()), "TLS handshake");
  // Also an alert, which says why this end has refused the other one.
  const Outcome sent = Flush();
  if (outcome != Outcome::kDone) return outcome;
  if (sent == Outcome::kEnded) return sent;
  return ComputeNumber() ? Outcome::kDone
                         : Fail(fmt::format("TLS keys of the connection: {}", LastTlsError()));
}

bool TlsSession::ComputeNumber() {
  std::array<unsigned char, sizeof(number_)> bytes{};
  if (SSL_export_keying_material(ssl_.get(), bytes.data(), bytes.size(), kNumberLabel.data(),
                                 kNumberLabel.size(), nullptr, 0, 0) <= 0) {
    return false;
  }
  for (const unsigned char byte : bytes) number_ = number_ << 8 | byte;
  if (number_ == 0) number_ = 1;
  return true;
}

TlsSession::ReadBytes TlsSession::Read(std::span<std::byte> memory) {
  ERR_clear_error();
  errno = 0;
  std::size_t bytes = 0;
  const int returned = SSL_read_ex(ssl_.get(), memory.data(), memory.size(), &bytes);
  // The length is not to be read after an error.
  if (returned <= 0) return {OutcomeOf(returned, "TLS"), 0};
  return {Outcome::kDone, bytes};
}

TlsSession::Outcome TlsSession::Write(std::span<const std::byte> bytes) {
  ERR_clear_error();
  errno = 0;
  if (bytes_with_key_ >= kBytesWithKeyMax) {
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    bytes_with_key_ = 0;
  }
  bytes_with_key_ += bytes.size();
  std::size_t written = 0;
  // The output takes everything, so all is written.
  return OutcomeOf(SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written), "TLS");
}

TlsSession::Outcome TlsSession::Flush() {
  while (unsent_bytes() > 0) {
    const ssize_t sent =
        ::send(fd(), unsent_.data() + sent_, unsent_bytes(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Outcome::kBlocked;
    return Fail(fmt::format("sending: {}", std::strerror(errno)));
  }
  unsent_.clear();
  sent_ = 0;
  if (unsent_.capacity() > SpareMemory().capacity()) unsent_.swap(SpareMemory());
  unsent_.shrink_to_fit();
  return Outcome::kDone;
}

void TlsSession::SayEnd() {
  ERR_clear_error();
  // Errors do not matter: the other end then sees that the connection has ended without a notice.
  (void)SSL_shutdown(ssl_.get());
  (void)Flush();
  ERR_clear_error();
}

}  // namespace forebay::peer
