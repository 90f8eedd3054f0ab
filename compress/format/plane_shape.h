// The shape of a stack of integer planes, the plane codec's only subject.
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

}  // namespace forebay::compress
