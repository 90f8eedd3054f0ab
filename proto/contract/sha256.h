// SHA-256 (FIPS 180-4): identities that somebody could gain from forging. For checksums of bytes
// in flight there is the far faster checksum.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace forebay {

using Sha256Digest = std::array<std::byte, 32>;

// The digest of `bytes`; a few hundred MB/s.
Sha256Digest Sha256(std::span<const std::byte> bytes);

// As 64 hexadecimal digits, as sha256sum prints it.
std::string Sha256Hex(const Sha256Digest& digest);

}  // namespace forebay
