// The bit-packed codec's constants (docs/pack_planes.md): blocks of 16 x 4 residuals, each with a
// predictor and as many bit planes as its largest residual needs. No entropy coding: it decodes
// at memory's pace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::compress {

inline constexpr std::uint32_t kBlockColumns = 16, kBlockRows = 4;
inline constexpr std::uint32_t kBlockSamples = kBlockColumns * kBlockRows;

// Flags of a body: which of its two sections lie behind lz4.
inline constexpr std::uint8_t kBitPackedCompressedCodes = 1, kBitPackedCompressedPlanes = 2;

// A block's byte is width << 3 | predictor.
inline constexpr std::uint8_t kTemporalPredictor = 4;  // less the previous frame, then as below
enum class SpatialPredictor : std::uint8_t { kNone = 0, kWest = 1, kNorth = 2, kGradient = 3 };

inline constexpr std::uint32_t CountBlocks(std::uint32_t pixels, std::uint32_t size) {
  return (pixels + size - 1) / size;
}

}  // namespace forebay::compress
