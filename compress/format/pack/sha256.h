// SHA-256 (FIPS 180-4) by OpenSSL: names of learned predictors, and ids that are derived from other
// ids. Checksums of data are XXH3-64 (proto/contract/checksum.h), which is far faster.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace forebay::compress {

using Sha256Digest = std::array<std::byte, 32>;

// The digest of `bytes`. Ends the program where OpenSSL offers no SHA-256 (a broken installation).
// Thread-safe.
Sha256Digest Sha256(std::span<const std::byte> bytes);

// The digest as 64 lower-case hexadecimal digits, as sha256sum prints it.
std::string Sha256Hex(const Sha256Digest& digest);

}  // namespace forebay::compress
