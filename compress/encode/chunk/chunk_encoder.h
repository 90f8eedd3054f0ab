// Encodes a chunk: the elements of some samples of one tile, to the smallest payload of the allowed
// codecs. Used by RecordQueue for packs and by the daemon for data sets that it compresses while
// staging.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "compress/encode/chunk/error_bound.h"
#include "compress/encode/plane_encoder.h"
#include "compress/format/chunk/chunk_shape.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

struct ChunkOptions {
  Profile profile = Profile::kBalanced;
  ErrorBound bound = {};
  // For profile `learned`. Readers of the chunk need the same predictor.
  std::shared_ptr<const Predictor> predictor = nullptr;
};

struct EncodedChunk {
  ChunkCodec codec = ChunkCodec::kStore;
  std::vector<std::byte> payload;
  // The decoded elements, if an error bound let them differ from what was encoded; otherwise empty.
  std::vector<std::byte> decoded = {};
};

// Encodes `raw`, the dense elements of `shape`, as a coded chunk (stages and planes), with zstd or
// LZ4, or stored: whichever is smallest, and of payloads of equal size the cheapest to decode. The
// payload is never larger than `raw`. A coded chunk has been decoded and compared with `raw`: it is
// equal, or every valid value lies within the bound. The same arguments give the same bytes, in
// every thread and on every machine with the same zstd. Thread-safe. Errors: kInvalidArgument for
// an invalid shape, length or bound.
Result<EncodedChunk> EncodeChunk(const ChunkShape& shape, std::span<const std::byte> raw,
                                 const ChunkOptions& options);

}  // namespace forebay::compress
