// Everything is made with OpenSSL, which gRPC uses for the connections, too. The authority's key is
// made from the secret each time, and forgotten: only its certificate is kept. The certificates of
// the authority that two nodes make have the same name and key, so each verifies what the other one
// has signed, although the two have other serial numbers and times.
#include "server/peer/job_certificates.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/peer/openssl_objects.h"

namespace forebay::peer {
namespace {

using Key = OwnedKey;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>>;
using Certificate = OwnedCertificate;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;
using Output = OwnedBio;
using Number = std::unique_ptr<BIGNUM, Freed<BN_free>>;

// Ed25519: a private key is any 32 bytes.
constexpr std::size_t kKeyBytes = 32;
// Enters each derived key, so that other uses of a secret give other keys.
constexpr std::string_view kSalt = "forebay job authority 1";

// OpenSSL keeps its errors in a list of the thread.
Error Failed(std::string_view what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return Error(ErrorCode::kInternal,
               fmt::format("certificates of the job: {}: {}", what, text.data()));
}

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// HKDF makes a key from a secret of any form, such as hexadecimal digits. The name of the job
// enters it, so that a secret which is used for two jobs gives two authorities.
Result<Key> AuthorityKey(std::string_view secret, std::string_view job) {
  const KeyContext derive(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  std::array<unsigned char, kKeyBytes> bytes{};
  std::size_t count = bytes.size();
  const bool is_derived =
      derive && EVP_PKEY_derive_init(derive.get()) > 0 &&
      EVP_PKEY_CTX_set_hkdf_md(derive.get(), EVP_sha256()) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_salt(derive.get(), Bytes(kSalt), static_cast<int>(kSalt.size())) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_key(derive.get(), Bytes(secret), static_cast<int>(secret.size())) >
          0 &&
      EVP_PKEY_CTX_add1_hkdf_info(derive.get(), Bytes(job), static_cast<int>(job.size())) > 0 &&
      EVP_PKEY_derive(derive.get(), bytes.data(), &count) > 0;
  Key key(is_derived ? EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes.data(), count)
                     : nullptr);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  if (!key) return Failed("deriving the authority's key");
  return key;
}

// The key of a certificate: random, so it is known to this process alone.
Result<Key> NewKey() {
  std::array<unsigned char, kKeyBytes> bytes{};
  Key key(RAND_priv_bytes(bytes.data(), static_cast<int>(bytes.size())) > 0
              ? EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes.data(), bytes.size())
              : nullptr);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  if (!key) return Failed("making a key");
  return key;
}

// A certificate as it is to be signed; everything is borrowed.
struct Signed {
  std::string_view subject;
  EVP_PKEY* key;        // that is certified
  std::string_view issuer;
  EVP_PKEY* issuer_key;
  ValidTime valid;
  std::vector<std::pair<int, const char*>> extensions;  // number, and value as in openssl.cnf
};

bool SetName(X509_NAME* name, std::string_view text) {
  return X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, Bytes(text),
                                    static_cast<int>(text.size()), -1, 0) > 0;
}

// One chain of calls, of which each needs the one before: the first that fails ends it, and OpenSSL
// keeps the reason.
Result<Certificate> Sign(const Signed& what) {
  constexpr long kVersion3 = 2;
  constexpr int kSerialBits = 127;
  Certificate certificate(X509_new());
  const Number serial(BN_new());
  X509* const raw = certificate.get();
  bool is_made =
      raw != nullptr && serial && BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, 0) > 0 &&
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(raw)) != nullptr &&
      X509_set_version(raw, kVersion3) > 0 && X509_set_pubkey(raw, what.key) > 0 &&
      SetName(X509_get_subject_name(raw), what.subject) &&
      SetName(X509_get_issuer_name(raw), what.issuer) &&
      ASN1_TIME_set(X509_getm_notBefore(raw), what.valid.from_s) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(raw), what.valid.until_s) != nullptr;
  for (const auto& [number, value] : what.extensions) {
    const Extension extension(
        is_made ? X509V3_EXT_conf_nid(nullptr, nullptr, number, value) : nullptr);
    is_made = extension && X509_add_ext(raw, extension.get(), -1) > 0;
  }
  // No digest: Ed25519 has its own.
  if (!is_made || X509_sign(raw, what.issuer_key, nullptr) == 0) return Failed("signing");
  return certificate;
}

// Returns what `write` writes to an output of OpenSSL. The output is overwritten when it is freed,
// because it may hold a private key.
template <typename Write>
Result<std::string> Pem(Write write) {
  const Output output(BIO_new(BIO_s_secmem()));
  if (!output || write(output.get()) <= 0) return Failed("writing");
  std::string text(static_cast<std::size_t>(BIO_pending(output.get())), '\0');
  if (BIO_read(output.get(), text.data(), static_cast<int>(text.size())) !=
      static_cast<int>(text.size())) {
    return Failed("writing");
  }
  return text;
}

Result<std::string> Pem(X509* certificate) {
  return Pem([&](BIO* output) { return PEM_write_bio_X509(output, certificate); });
}

constexpr std::string_view kAuthority = "authority of a forebay job";

// Whom a certificate is for, and what for: the names in it, and the extended use of its key.
struct Purpose {
  std::string_view subject;
  const char* alternative_name = nullptr;
  const char* use = nullptr;
};
constexpr Purpose kForNode = {kCertifiedName, "DNS:node.forebay", "serverAuth,clientAuth"};
// Without serverAuth, it does not make a server that nodes or clients would talk to.
constexpr Purpose kForClients = {"client.forebay", "DNS:client.forebay", "clientAuth"};

struct Certified {
  std::string certificate;
  std::string key;
};

// Makes a key and a certificate for it. CA:FALSE: its owner cannot sign certificates for others.
Result<Certified> Certify(const Purpose& purpose, EVP_PKEY* authority_key,
                          const ValidTime& valid) {
  FOREBAY_ASSIGN(const Key key, NewKey());
  FOREBAY_ASSIGN(const Certificate certificate,
                 Sign({.subject = purpose.subject,
                       .key = key.get(),
                       .issuer = kAuthority,
                       .issuer_key = authority_key,
                       .valid = valid,
                       .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                                      {NID_key_usage, "critical,digitalSignature"},
                                      {NID_ext_key_usage, purpose.use},
                                      {NID_subject_alt_name, purpose.alternative_name}}}));
  Certified made;
  FOREBAY_ASSIGN(made.certificate, Pem(certificate.get()));
  FOREBAY_ASSIGN(made.key, Pem([&](BIO* output) {
                   return PEM_write_bio_PrivateKey(output, key.get(), nullptr, nullptr, 0, nullptr,
                                                   nullptr);
                 }));
  return made;
}

}  // namespace

Result<NodeCertificates> MakeNodeCertificates(std::string_view secret, std::string_view job,
                                              const ValidTime& valid) {
  if (secret.size() < kJobSecretBytesMin) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the secret of the job has {} bytes, at least {} are needed",
                             secret.size(), kJobSecretBytesMin));
  }
  FOREBAY_ASSIGN(const Key authority_key, AuthorityKey(secret, job));
  // pathlen:0: nobody signs certificates but the authority itself.
  FOREBAY_ASSIGN(const Certificate authority,
                 Sign({.subject = kAuthority,
                       .key = authority_key.get(),
                       .issuer = kAuthority,
                       .issuer_key = authority_key.get(),
                       .valid = valid,
                       .extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                      {NID_key_usage, "critical,keyCertSign"}}}));
  NodeCertificates made;
  FOREBAY_ASSIGN(made.authority, Pem(authority.get()));
  FOREBAY_ASSIGN(Certified node, Certify(kForNode, authority_key.get(), valid));
  made.node = std::move(node.certificate);
  made.key = std::move(node.key);
  FOREBAY_ASSIGN(Certified client, Certify(kForClients, authority_key.get(), valid));
  made.client = std::move(client.certificate);
  made.client_key = std::move(client.key);
  return made;
}

Result<std::string> AuthorityDigest(const NodeCertificates& certificates) {
  const Output input(BIO_new_mem_buf(certificates.authority.data(),
                                     static_cast<int>(certificates.authority.size())));
  const Certificate authority(
      input ? PEM_read_bio_X509(input.get(), nullptr, nullptr, nullptr) : nullptr);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned count = 0;
  if (!authority || X509_pubkey_digest(authority.get(), EVP_sha256(), digest.data(), &count) <= 0) {
    return Failed("reading the authority's certificate");
  }
  std::string text;
  for (const unsigned byte : std::span(digest).first(count)) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace forebay::peer
