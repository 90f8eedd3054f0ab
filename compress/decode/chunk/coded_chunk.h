// Decodes a coded chunk (docs/pack_chunk.md): whole samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/frame_output.h"
#include "compress/decode/isa.h"
#include "compress/format/chunk/chunk_shape.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Scratch memory of DecodeCodedChunk for any payload of this shape.
std::size_t CodedChunkScratchBytes(const ChunkShape& shape);

// Decodes the samples [0, end), end > 0, each to its place in `out`; samples without a place are
// only decoded as far as others need them. Frames behind the last sample are not decoded. Errors:
// those of DecodeChunk.
Status DecodeCodedChunk(const ChunkShape& shape, std::span<const std::byte> payload,
                        std::uint32_t end, const FrameOutput& out, std::span<std::byte> scratch,
                        PredictorList predictors, Isa isa);

}  // namespace forebay::compress
