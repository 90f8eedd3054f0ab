// Front ends and streams of a coded chunk (docs/pack_chunk.md).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/encode/chunk/chunk_encoder.h"

namespace forebay::compress {

// The payload of codec `coded`; may be larger than `raw`. `shape` and `options` are valid.
Result<std::vector<std::byte>> EncodeCodedChunk(const ChunkShape& shape,
                                                std::span<const std::byte> raw,
                                                const ChunkOptions& options);

}  // namespace forebay::compress
