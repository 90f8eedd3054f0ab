// How a chunk's payload is coded (docs/pack.md, chunk record).
#pragma once

#include <cstdint>

namespace forebay::compress {

// Persisted by number; never renumber.
enum class ChunkCodec : std::uint8_t {
  kStore = 0,  // the elements
  kZstd = 1,   // one zstd frame, with content size and checksum
  kLz4 = 2,    // one LZ4 block
  kCoded = 3,  // front ends and planes (docs/pack_chunk.md)
};

}  // namespace forebay::compress
