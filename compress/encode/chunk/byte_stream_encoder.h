// Encodes the byte streams of chunks (decode/chunk/byte_stream.h decodes them).
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

// Whether zstd may make `bytes` smaller than `other_bytes`, by a probe of 32 KiB. A guess that
// saves the time to compress everything.
bool MayBeat(std::span<const std::byte> bytes, std::size_t other_bytes);

// The size to pass to MayBeat when plane codecs took `planes_bytes`. Planes below a 24th of the
// samples are drawings or labels, which repeat over longer distances than a probe sees, so zstd is
// tried more readily. Others come from cameras and the like, for which a probe is reliable.
inline std::size_t BarBesidePlanes(std::size_t raw_bytes, std::size_t planes_bytes) {
  return planes_bytes > raw_bytes / 24 ? planes_bytes / 8 * 5 : planes_bytes;
}

// zstd at `level`, or stored where that is no larger.
EncodedStream EncodeSideStream(std::span<const std::byte> bytes, int level);

}  // namespace forebay::compress
