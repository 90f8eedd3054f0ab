// Byte streams that decode/byte_stream.h reads.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/format/chunk/chunk_header.h"

namespace forebay::compress {

struct EncodedStream {
  StreamCoder coder = StreamCoder::kStore;
  std::size_t raw_bytes = 0;
  std::vector<std::byte> body;
};

// One zstd frame with content size and checksum; a window of at most limits::kChunkBytesMax.
std::vector<std::byte> CompressZstd(std::span<const std::byte> bytes, int level);
std::vector<std::byte> CompressLz4(std::span<const std::byte> bytes);

// False where a part of `bytes` says that zstd will not come near `other_bytes`: a guess that
// saves the time to try.
bool MayBeat(std::span<const std::byte> bytes, std::size_t other_bytes);

// What to ask of MayBeat where planes came to `planes_bytes`. Below a 24th of the samples,
// they are drawn or labelled, and repeat themselves from afar beyond what a probe sees; else
// they are taken by cameras and the like, where the probe tells.
inline std::size_t BarBesidePlanes(std::size_t raw_bytes, std::size_t planes_bytes) {
  return planes_bytes > raw_bytes / 24 ? planes_bytes / 8 * 5 : planes_bytes;
}

// zstd at `level`, or stored where that is no larger.
EncodedStream EncodeSideStream(std::span<const std::byte> bytes, int level);

}  // namespace forebay::compress
