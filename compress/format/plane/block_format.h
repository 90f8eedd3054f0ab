// Blocks and predictors of bit-packed and block-rANS planes (docs/pack_planes.md): blocks of 16 x 4
// samples, each with a predictor of its own. A bit-packed block has as many bit planes as its
// largest residual needs, without entropy coding, so that it decodes at the pace of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::compress {

inline constexpr std::uint32_t kBlockColumns = 16, kBlockRows = 4;
inline constexpr std::uint32_t kBlockSamples = kBlockColumns * kBlockRows;

// Flags of a bit-packed body: which of its two sections are compressed with LZ4.
inline constexpr std::uint8_t kBitPackedCompressedCodes = 1, kBitPackedCompressedPlanes = 2;

// A predictor is a SpatialPredictor, plus kTemporalPredictor if the previous frame is subtracted
// first. The byte of a bit-packed block is width << 3 | predictor.
inline constexpr std::uint8_t kTemporalPredictor = 4;
enum class SpatialPredictor : std::uint8_t { kNone = 0, kWest = 1, kNorth = 2, kGradient = 3 };

inline constexpr std::uint32_t CountBlocks(std::uint32_t pixels, std::uint32_t size) {
  return (pixels + size - 1) / size;
}

}  // namespace forebay::compress
