// The shape of a stack of integer planes, which is all that a plane codec knows of its input, and
// the kinds of plane bodies (docs/pack_planes.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::compress {

// `frames` planes of `rows` x `columns` samples of 1 to 16 valid bits. Samples are u8 up to 8
// bits, else u16 little-endian, dense as [frames][rows][columns]; bits above the valid ones are
// zero.
struct PlaneShape {
  std::uint32_t frames = 0, rows = 0, columns = 0;
  std::uint8_t bits = 8;

  std::size_t sample_bytes() const { return bits <= 8 ? 1 : 2; }
  std::size_t frame_samples() const { return std::size_t{rows} * columns; }
  std::size_t bytes() const { return frames * frame_samples() * sample_bytes(); }
};

// First byte of a body: how the rest is coded. Persisted by number; never renumber.
inline constexpr std::byte kPlaneKindRaw{0};   // samples as they are
inline constexpr std::byte kPlaneKindZstd{1};  // difference to the previous frame, zstd
inline constexpr std::byte kPlaneKindWavefront{2};  // predicted, rANS (format/wavefront_format.h)
inline constexpr std::byte kPlaneKindBitPacked{3};  // predicted, bit planes (format/block_format.h)
inline constexpr std::byte kPlaneKindBlockRans{
    4};  // predicted, rANS by block (format/block_rans_format.h)
// As wavefront, corrected by a learned predictor (format/predictor.h); up to 8 bits.
inline constexpr std::byte kPlaneKindLearned{5};

}  // namespace forebay::compress
