// The arithmetic of prediction, the same for both sides (docs/pack_planes.md).
//
// Sums are taken modulo 2^16 for samples of up to 8 bits and modulo 2^32 beyond, of samples less
// half their range: every order of additions gives the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "compress/format/plane/padded_frame.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

template <typename T>
using WavefrontSum = std::conditional_t<sizeof(T) == 1, std::int16_t, std::int32_t>;

// Adds weight * value, wrapping.
template <typename Sum>
inline Sum WrappingMultiplyAdd(Sum sum, std::int32_t weight, std::int32_t value) {
  using Unsigned = std::make_unsigned_t<Sum>;
  return static_cast<Sum>(static_cast<Unsigned>(
      static_cast<std::uint32_t>(static_cast<Unsigned>(sum)) +
      static_cast<std::uint32_t>(weight) * static_cast<std::uint32_t>(value)));
}

// The value that `sum` predicts: rounded, put back to the samples' range, clamped to it.
template <typename Sum>
inline std::int32_t WavefrontValue(Sum sum, std::int32_t middle) {
  // In Sum's width the addition may wrap; in the wider one it would not.
  const auto rounded = WrappingMultiplyAdd<Sum>(sum, 1, 1 << (kWavefrontWeightBits - 1));
  return std::clamp((static_cast<std::int32_t>(rounded) >> kWavefrontWeightBits) + middle, 0,
                    2 * middle - 1);
}

// A residual's size as contexts see it. `residual` is modulo 2^bits.
inline std::uint8_t WavefrontMagnitude(std::uint32_t residual, std::uint32_t bits,
                                       std::uint32_t shift) {
  const std::uint32_t range = 1U << bits;
  const std::uint32_t size = residual <= range / 2 ? residual : range - residual;
  return static_cast<std::uint8_t>(std::min<std::uint32_t>(size >> shift, 255));
}

// The part of a prediction that the frames before contribute, for `count` pixels of a row from
// (row, column) on. `earlier` is null for a chunk's second frame, which takes `previous` at
// single motion in its place.
template <typename T>
void AddTemporalTaps(const WavefrontFilter& filter, const WavefrontBlock& block,
                     const PaddedFrame<const T>& previous, const PaddedFrame<const T>* earlier,
                     std::int32_t row, std::int32_t column, std::uint32_t count,
                     std::int32_t middle, WavefrontSum<T>* sums) {
  const auto add = [&](const T* from, std::int32_t weight) {
    if (weight == 0) return;
    for (std::uint32_t i = 0; i < count; ++i) {
      sums[i] = WrappingMultiplyAdd<WavefrontSum<T>>(sums[i], weight,
                                                     static_cast<std::int32_t>(from[i]) - middle);
    }
  };
  const std::int32_t y = row + block.motion_row;
  const std::int32_t x = column + block.motion_column;
  const std::int16_t* weight = filter.weights.data() + kIntraTapCount;
  for (const TapOffset& tap : kPreviousTaps) {
    add(previous.Row(y + tap.row) + x + tap.column, *weight++);
  }
  const PaddedFrame<const T>& before = earlier != nullptr ? *earlier : previous;
  const std::int32_t y2 = earlier != nullptr ? y + block.motion_row : y;
  const std::int32_t x2 = earlier != nullptr ? x + block.motion_column : x;
  for (const TapOffset& tap : kEarlierTaps) {
    add(before.Row(y2 + tap.row) + x2 + tap.column, *weight++);
  }
}

// What a pixel's energy is made of: magnitudes of its neighbours' residuals, zero where there
// is none. The sum saturates at 255.
struct WavefrontEnergy {
  std::uint32_t west = 0, west2 = 0, north = 0, north_west = 0, north_east = 0, north2 = 0;
  std::uint32_t previous = 0, previous_west = 0, previous_east = 0;

  std::uint32_t Sum() const {
    return std::min<std::uint32_t>(2 * west + west2 + 2 * north + north_west + north_east +
                                       north2 + 2 * previous + previous_west + previous_east,
                                   255);
  }
};

}  // namespace forebay::compress
