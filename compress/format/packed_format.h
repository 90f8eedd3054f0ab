// The packed codec's constants (docs/pack_planes.md): blocks of 16 x 4 residuals, each with a
// predictor and as many bit planes as its largest residual needs. No entropy coding: it decodes
// at memory's pace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::compress {

inline constexpr std::uint32_t kPackedColumns = 16, kPackedRows = 4;
inline constexpr std::uint32_t kPackedSamples = kPackedColumns * kPackedRows;

// Flags of a body: which of its two sections lie behind lz4.
inline constexpr std::uint8_t kPackedSqueezedCodes = 1, kPackedSqueezedPlanes = 2;

// A block's byte is width << 3 | predictor.
inline constexpr std::uint8_t kPackedTemporal = 4;  // less the previous frame, then as below
enum class PackedSpatial : std::uint8_t { kNone = 0, kWest = 1, kNorth = 2, kGradient = 3 };

inline constexpr std::uint32_t PackedBlocks(std::uint32_t pixels, std::uint32_t size) {
  return (pixels + size - 1) / size;
}

}  // namespace forebay::compress
