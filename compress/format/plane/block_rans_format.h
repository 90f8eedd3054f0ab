// Constants of block-rANS planes (docs/pack_planes.md): the blocks and predictors of
// block_format.h, and residuals coded by rANS in 64 lanes under one of a few static distributions,
// which the block names. A lane needs nothing that another lane decodes in the same block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/format/plane/block_format.h"
#include "compress/format/plane/plane_shape.h"

namespace forebay::compress {

inline constexpr std::uint32_t kBlockRansLanes = kBlockSamples;  // a lane a sample of a block
inline constexpr std::uint32_t kBlockRansClassesMax = 31;  // besides class 0, residuals of zero
inline constexpr std::uint32_t kBlockRansSlots = 256;      // that the frequencies of a class share
// A state lies in [2^8, 2^16) and is refilled by a byte: a state's low byte is its slot.
inline constexpr std::uint32_t kBlockRansStateMin = 256;

// Flags of a body: the side information is compressed with zstd.
inline constexpr std::uint8_t kBlockRansCompressedSide = 1;

// A block's byte is class << 3 | predictor.
inline constexpr std::uint8_t kPredictorMask = 7;

// Bytes of the states, which end a body.
inline constexpr std::size_t kBlockRansStateBytes = std::size_t{2} * kBlockRansLanes;

inline constexpr std::size_t kBlockRansTableBytesMax = 2 + kBlockRansSlots;  // of a class

// The signed tokens -128 .. 127 in the order of their frequencies: 0, -1, 1, -2, 2, ...
inline constexpr std::int32_t BlockRansToken(std::uint32_t rank) {
  const auto half = static_cast<std::int32_t>((rank + 1) >> 1);
  return (rank & 1) != 0 ? -half : half;
}

// Blocks of all frames.
inline std::size_t CountBlocks(const PlaneShape& shape) {
  return std::size_t{shape.frames} * CountBlocks(shape.rows, kBlockRows) *
         CountBlocks(shape.columns, kBlockColumns);
}

inline std::size_t BlockRansSideBytesMax(const PlaneShape& shape) {
  return kBlockRansClassesMax * kBlockRansTableBytesMax + CountBlocks(shape);
}

}  // namespace forebay::compress
