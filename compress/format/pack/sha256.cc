// Calls OpenSSL's EVP interface, so that its headers are seen in this file only.
#include "compress/format/pack/sha256.h"

#include <string_view>

#include <openssl/evp.h>

#include "proto/contract/check.h"

namespace forebay::compress {

Sha256Digest Sha256(std::span<const std::byte> bytes) {
  Sha256Digest digest;
  unsigned digest_bytes = 0;
  // EVP_Digest fails only where the default provider lacks SHA-256 or memory runs out.
  const int done = EVP_Digest(bytes.data(), bytes.size(),
                              reinterpret_cast<unsigned char*>(digest.data()), &digest_bytes,
                              EVP_sha256(), nullptr);
  // Neither leaves the process able to vouch for any predictor, so it ends.
  FOREBAY_CHECK(done == 1 && digest_bytes == digest.size());
  return digest;
}

std::string Sha256Hex(const Sha256Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{0x0F})];
  }
  return text;
}

}  // namespace forebay::compress
