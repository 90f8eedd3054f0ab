// The brisk codec's constants (docs/pack_planes.md): packed's blocks and predictors, residuals
// entropy-coded by 64 lanes at once under one of a few static distributions that the block names.
// Nothing that a lane needs depends on what another lane decodes in the same block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/format/packed_format.h"
#include "compress/format/plane_shape.h"

namespace forebay::compress {

inline constexpr std::uint32_t kBriskLanes = kPackedSamples;  // a lane a sample of a block
inline constexpr std::uint32_t kBriskClassesMax = 31;  // besides class 0, residuals of zero
inline constexpr std::uint32_t kBriskSlots = 256;      // that the frequencies of a class share
// A state lies in [2^8, 2^16) and is refilled by a byte: a state's low byte is its slot.
inline constexpr std::uint32_t kBriskStateMin = 256;

// Flags of a body: the side information lies behind zstd.
inline constexpr std::uint8_t kBriskSqueezedSide = 1;

// A block's byte is class << 3 | predictor, the predictor as in packed.
inline constexpr std::uint8_t kBriskPredictorMask = 7;

// Bytes of the states, which end a body.
inline constexpr std::size_t kBriskStateBytes = std::size_t{2} * kBriskLanes;

inline constexpr std::size_t kBriskTableBytesMax = 2 + kBriskSlots;  // of a class

// The signed tokens -128 .. 127 in the order of their frequencies: 0, -1, 1, -2, 2, ...
inline constexpr std::int32_t BriskToken(std::uint32_t rank) {
  const auto half = static_cast<std::int32_t>((rank + 1) >> 1);
  return (rank & 1) != 0 ? -half : half;
}

// Blocks of all frames.
inline std::size_t BriskBlocks(const PlaneShape& shape) {
  return std::size_t{shape.frames} * PackedBlocks(shape.rows, kPackedRows) *
         PackedBlocks(shape.columns, kPackedColumns);
}

inline std::size_t BriskSideBytesMax(const PlaneShape& shape) {
  return kBriskClassesMax * kBriskTableBytesMax + BriskBlocks(shape);
}

}  // namespace forebay::compress
