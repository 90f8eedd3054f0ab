// Decodes a coded chunk (docs/pack_chunk.md): whole samples, dense.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/format/chunk_shape.h"
#include "compress/format/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Scratch memory of DecodeCodedChunk for any payload of this shape.
std::size_t CodedChunkScratchBytes(const ChunkShape& shape);

// Decodes samples [first, first + count), count > 0, into `out`, which has exactly their bytes.
// Looks at no frame behind the last of them. Errors as of DecodeChunk.
Status DecodeCodedChunk(const ChunkShape& shape, std::span<const std::byte> payload,
                        std::uint32_t first, std::uint32_t count, std::span<std::byte> out,
                        std::span<std::byte> scratch, PredictorList predictors);

}  // namespace forebay::compress
