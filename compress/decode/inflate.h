// Decodes zstd frames and LZ4 blocks strictly, for streams of bytes, planes and side information.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"

namespace forebay::compress {

// Whether a frame must end in a checksum. Only the side information of block-rANS planes needs
// none: encoders have never written one there (docs/pack_planes.md).
enum class ZstdChecksum : std::uint8_t { kRequired, kOptional };

// Bytes of scratch memory of InflateZstd, at any address. The value is computed once, because
// sizing the scratch memory of one chunk calls this dozens of times.
std::size_t InflateScratchBytes();

// The decoded size that a zstd frame states at its head. Errors: kDataLoss where there is no frame
// or it states none.
Result<std::size_t> ZstdContentBytes(std::span<const std::byte> body);

// Decodes `body` to exactly `out.size()` bytes. It is one zstd frame from its first byte to its
// last, which states that size, asks for no dictionary and needs a window of at most
// limits::kChunkBytesMax. `scratch` has InflateScratchBytes. Allocates nothing. Errors: kDataLoss.
Status InflateZstd(std::span<const std::byte> body, ZstdChecksum checksum,
                   std::span<std::byte> out, std::span<std::byte> scratch);

// Decodes `body`, one LZ4 block from its first byte to its last, to exactly `out.size()` bytes, of
// which there are at most twice limits::kChunkBytesMax. Allocates nothing. Errors: kDataLoss.
Status InflateLz4(std::span<const std::byte> body, std::span<std::byte> out);

}  // namespace forebay::compress
