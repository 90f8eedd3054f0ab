// Decodes a chunk's payload into the caller's memory: a range of its samples, or single samples
// into places of their own. Use it where a payload is at hand without its record; chunk_record.h
// also verifies checksums.
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

// A range of a chunk: a run of its samples, and a box of the elements of its tile.
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

// Where a range is written: its element (sample, i0 .. i3), counted from the range's first, goes to
// byte sample * sample_stride + sum of i * axis_stride of `memory`.
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

// Decodes `range` of a chunk into `out`; samples behind its last one are not decoded. `payload` may
// come from anywhere: its sizes are checked against the shape before they are used, nothing is
// allocated, and nothing is written outside the range's elements. `scratch` has ChunkScratchBytes,
// and none of the memories overlap. `predictors` are those of learned planes (DecodePlanes). The
// processor must have `isa`; every instruction set gives the same bits and error codes.
// Thread-safe.
//
// Errors: kInvalidArgument (a range, output or shape that does not fit), kDataLoss (a payload that
// no encoder wrote), kUnimplemented (a payload of a newer version). The range's elements are then
// undefined. A damaged payload may also decode without an error: checksums are the container's
// task.
Status DecodeChunk(const ChunkShape& shape, ChunkCodec codec, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   std::span<std::byte> scratch, PredictorList predictors = {},
                   Isa isa = BestIsa());

// Decodes whole samples, each to a place of its own: sample i of the chunk to `places[i]`, which
// has shape.sample_bytes() bytes, or is empty if the sample is not wanted. There may be fewer
// places than samples; samples behind the last place are not decoded. Otherwise as DecodeChunk.
Status DecodeChunkSamples(const ChunkShape& shape, ChunkCodec codec,
                          std::span<const std::byte> payload,
                          std::span<const std::span<std::byte>> places,
                          std::span<std::byte> scratch, PredictorList predictors = {},
                          Isa isa = BestIsa());

// Whether DecodeChunkSamples decodes chunks of this codec directly to the places; if not, it
// decodes into scratch memory and copies.
constexpr bool DecodesToPlaces(ChunkCodec codec) {
  return codec == ChunkCodec::kCoded || codec == ChunkCodec::kStore;
}

}  // namespace forebay::compress
