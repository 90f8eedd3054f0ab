// The current frame's neighbours of a pixel, with the rules of the frame's edges.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "compress/format/plane/padded_frame.h"
#include "compress/format/plane/wavefront_format.h"
#include "compress/format/plane/wavefront_predict.h"

namespace forebay::compress {

// Values of a pixel's neighbours in the order of kCurrentTaps. `here`, `above` and `above2` are the
// pixel's row and the two rows before it; `last` is the last column. In column 0 west is north, and
// in columns 0 and 1 west-west is west; elsewhere a row's edge pixel stands for pixels beyond it.
template <typename T>
inline std::array<std::int32_t, kIntraTapCount> CurrentNeighbours(const T* here, const T* above,
                                                                  const T* above2,
                                                                  std::int32_t column,
                                                                  std::int32_t last) {
  const std::int32_t left = std::max(column - 1, 0);
  const std::int32_t left2 = std::max(column - 2, 0);
  const std::int32_t right = std::min(column + 1, last);
  const std::int32_t west = column > 0 ? here[column - 1] : above[column];
  const std::int32_t west2 = column > 1 ? here[column - 2] : west;
  return {west,           west2,         above[column], above[left],  above[right],
          above2[column], above[left2], above2[left],  above2[right]};
}

// The same for the pixel at (row, column) of `frame`, whose rows -1 and -2 are set.
template <typename T>
inline std::array<std::int32_t, kIntraTapCount> CurrentNeighbours(const PaddedFrame<T>& frame,
                                                                  std::int32_t row,
                                                                  std::int32_t column) {
  return CurrentNeighbours(frame.Row(row), frame.Row(row - 1), frame.Row(row - 2), column,
                           static_cast<std::int32_t>(frame.columns) - 1);
}

// The prediction of a pixel: `sum` holds the temporal part.
template <typename Sum>
inline std::int32_t PredictPixel(const WavefrontFilter& filter, Sum sum,
                                 const std::array<std::int32_t, kIntraTapCount>& taps,
                                 std::int32_t middle) {
  for (std::size_t i = 0; i < kIntraTapCount; ++i) {
    sum = WrappingMultiplyAdd<Sum>(sum, filter.weights[i], taps[i] - middle);
  }
  const std::int32_t value = WavefrontValue<Sum>(sum, middle);
  if (!filter.clamped) return value;
  return std::clamp(value, std::min(taps[0], taps[2]), std::max(taps[0], taps[2]));
}

// The energy of the pixel at (row, column); arrays of magnitudes are [rows][columns].
inline std::uint32_t PixelEnergy(const std::uint8_t* sizes, const std::uint8_t* previous_sizes,
                                 std::uint32_t columns, std::uint32_t row,
                                 std::uint32_t column) {
  WavefrontEnergy energy;
  const std::size_t at = std::size_t{row} * columns + column;
  const bool right = column + 1 < columns;
  if (column > 0) energy.west = sizes[at - 1];
  if (column > 1) energy.west2 = sizes[at - 2];
  if (row > 0) {
    const std::uint8_t* const above = sizes + at - columns;
    energy.north = above[0];
    if (column > 0) energy.north_west = above[-1];
    if (right) energy.north_east = above[1];
    if (row > 1) energy.north2 = sizes[at - 2 * std::size_t{columns}];
  }
  if (previous_sizes != nullptr) {
    energy.previous = previous_sizes[at];
    if (column > 0) energy.previous_west = previous_sizes[at - 1];
    if (right) energy.previous_east = previous_sizes[at + 1];
  }
  return energy.Sum();
}

inline std::uint32_t EnergyContext(const WavefrontGroup& group, std::uint32_t energy) {
  std::uint32_t context = 0;
  while (context < group.thresholds.size() && energy >= group.thresholds[context]) ++context;
  return context;
}

}  // namespace forebay::compress
