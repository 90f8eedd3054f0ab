// Encodes a chunk.
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
  // Of profile learned; the chunk's readers need it, too.
  std::shared_ptr<const Predictor> predictor = nullptr;
};

struct EncodedChunk {
  ChunkCodec codec = ChunkCodec::kStore;
  std::vector<std::byte> payload;
  // What a reader gets, where a bound let that be something else than was encoded; else empty.
  std::vector<std::byte> decoded = {};
};

// Encodes `raw`, dense elements of `shape`: with front ends and planes, or with zstd, or stored,
// whichever is smallest, and of equals the cheapest to decode; the payload is never larger than
// `raw`. A chunk of codec kCoded has been decoded and compared with `raw`: it is equal, or every
// valid value lies within the bound.
// The same bytes for the same arguments, in every thread and on every machine with the same zstd.
// Errors: kInvalidArgument for a shape, length or bound that makes no sense. Thread-safe.
Result<EncodedChunk> EncodeChunk(const ChunkShape& shape, std::span<const std::byte> raw,
                                 const ChunkOptions& options);

}  // namespace forebay::compress
