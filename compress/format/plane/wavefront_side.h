// The models of a body's side information, in the order of their use (docs/pack_planes.md). Encoder
// and decoder have one set each and update them in the same way.
#pragma once

#include <array>
#include <cstdint>

#include "compress/format/plane/plane_bits.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

struct WavefrontSideModels {
  BitModel clamped, learned;
  std::array<NumberModel, kInterTapCount> weights;
  NumberModel threshold;
  NumberModel symbol_count;
  std::array<TreeModel<4>, 13> frequency_length;  // by the previous frequency's bit length
  BitModel frame_skips, frame_moves;              // does any block of the frame?
  std::array<std::array<BitModel, 3>, 2> skip;    // inter; neighbours skipped
  std::array<std::array<BitModel, 2>, 2> as_left;      // inter; left equals above
  std::array<std::array<BitModel, 2>, 2> same_filter;  // inter; left's equals above's
  // Inter; left. A tree of as many bits as the group's filters need.
  std::array<std::array<TreeModel<4>, kWavefrontFiltersMax>, 2> filter;
  std::array<BitModel, 2> same_motion;  // left's equals above's
  std::array<NumberModel, 2> motion;    // row, column
};

// The symbol at place `rank` of a frequency list: 0, 255, 1, 254, 2 ... for samples of up to 8
// bits, whose residuals are small of either sign; tokens come in their own order.
inline constexpr std::uint32_t WavefrontSymbolAt(std::uint32_t rank, std::uint32_t bits) {
  if (bits > 8) return rank;
  const std::uint32_t half = (rank + 1) / 2;
  return (rank % 2 == 0 ? half : (1U << bits) - half) & ((1U << bits) - 1);
}

inline constexpr std::uint32_t WavefrontSymbolCount(std::uint32_t bits) {
  return bits > 8 ? kWavefrontDirectTokens + 4 * (bits - 4) : 1U << bits;
}

}  // namespace forebay::compress
