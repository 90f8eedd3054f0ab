// Decodes a chunk's payload into the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/isa.h"
#include "compress/format/chunk/chunk_shape.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Which elements of a chunk are wanted: a run of its samples and a box of its tile.
struct ChunkRange {
  std::uint32_t first_sample = 0, sample_count = 0;
  std::array<std::uint32_t, kChunkRankMax> origin = {0, 0, 0, 0};
  std::array<std::uint32_t, kChunkRankMax> extent = {1, 1, 1, 1};

  static ChunkRange Whole(const ChunkShape& shape) {
    return {.first_sample = 0, .sample_count = shape.samples, .extent = shape.extent};
  }
  static ChunkRange Samples(const ChunkShape& shape, std::uint32_t first, std::uint32_t count) {
    return {.first_sample = first, .sample_count = count, .extent = shape.extent};
  }
};

// Where they go: the wanted element with indices (sample, i0 .. i3), counted from the range's
// first, lies at byte sample * sample_stride + sum of i * axis_stride of `memory`.
struct StridedOutput {
  std::span<std::byte> memory = {};
  std::size_t sample_stride = 0;  // bytes
  std::array<std::size_t, kChunkRankMax> axis_stride = {0, 0, 0, 0};

  // Dense, without gaps, in the range's order.
  static StridedOutput Dense(const ChunkShape& shape, const ChunkRange& range,
                             std::span<std::byte> memory);
};

// Scratch memory that DecodeChunk needs for any payload of a chunk of this shape.
std::size_t ChunkScratchBytes(const ChunkShape& shape);

// Decodes `range` of a chunk into `out`, and no further than its last sample. `payload` may hold
// anything: the payload's sizes are checked against the shape before use, nothing is allocated,
// nothing is written outside the wanted elements. `scratch` has ChunkScratchBytes; none of the
// memories overlap. Thread-safe.
//
// Errors: kInvalidArgument for a range, output or shape that does not fit; kDataLoss for a
// payload that no encoder wrote; kUnimplemented for one that a newer encoder may have. After an
// error the wanted elements are undefined. `predictors` are those of learned planes
// (DecodePlanes). Not a checksum: a damaged payload may decode (the container verifies before and
// after). Every kernel gives the same bits and the same error codes; the processor has `isa`.
Status DecodeChunk(const ChunkShape& shape, ChunkCodec codec, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   std::span<std::byte> scratch, PredictorList predictors = {},
                   Isa isa = BestIsa());

// Decodes whole samples, each to a place of its own: sample i of the chunk to `places[i]`, which
// has shape.sample_bytes() bytes, or none where it is not wanted. No more places than samples;
// no sample behind the last place is decoded. Otherwise as DecodeChunk.
Status DecodeChunkSamples(const ChunkShape& shape, ChunkCodec codec,
                          std::span<const std::byte> payload,
                          std::span<const std::span<std::byte>> places,
                          std::span<std::byte> scratch, PredictorList predictors = {},
                          Isa isa = BestIsa());

// Whether DecodeChunkSamples decodes chunks of this codec to their places, or aside and copies.
constexpr bool DecodesToPlaces(ChunkCodec codec) {
  return codec == ChunkCodec::kCoded || codec == ChunkCodec::kStore;
}

}  // namespace forebay::compress
