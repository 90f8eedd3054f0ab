// Encodes the stages and streams of a coded chunk (docs/pack_chunk.md).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/encode/chunk/chunk_encoder.h"

namespace forebay::compress {

// Returns the payload of codec `coded`, which may be larger than `raw`. `shape` and `options` must
// be valid (EncodeChunk checks them).
Result<std::vector<std::byte>> EncodeCodedChunk(const ChunkShape& shape,
                                                std::span<const std::byte> raw,
                                                const ChunkOptions& options);

}  // namespace forebay::compress
