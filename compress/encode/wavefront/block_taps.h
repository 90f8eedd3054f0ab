// A block of pixels as a matrix with one line for each neighbour, for pricing and fitting filters.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "compress/encode/wavefront/filter_kernels.h"
#include "compress/encode/wavefront/wavefront_work.h"
#include "compress/format/plane/wavefront_taps.h"

namespace forebay::compress {

inline constexpr std::uint32_t kTapBlockSize = 16;
inline constexpr std::uint32_t kTapBlockPixels = kTapBlockSize * kTapBlockSize;

// Values less the middle of their range. Pixels beyond the frame are zero in every row.
template <typename T>
struct BlockTaps {
  using Value = std::int16_t;
  using Line = std::array<Value, kTapBlockPixels>;
  using Errors =
      std::array<std::conditional_t<sizeof(T) == 1, std::int16_t, std::int32_t>, kTapBlockPixels>;

  std::uint32_t tap_count = 0;
  alignas(64) std::array<Line, kInterTapCount> taps;
  alignas(64) Line target;

  void Load(const WavefrontWork<T>& work, std::uint32_t frame, std::uint32_t row,
            std::uint32_t column, const WavefrontBlock& motion);

 private:
  // Neighbours at columns 0 and 1 of the frame and in its first two rows follow rules of
  // their own; all others are where they are.
  void LoadCurrent(const WavefrontWork<T>& work, std::uint32_t frame, std::uint32_t row,
                   std::uint32_t column, std::uint32_t rows, std::uint32_t columns);
};

// What a filter leaves of each pixel: target less prediction.
template <typename T>
inline void FilterErrors(const BlockTaps<T>& block, const WavefrontFilter& filter,
                         std::int32_t middle, typename BlockTaps<T>::Errors& errors) {
  const std::int16_t* const west = filter.clamped ? block.taps[0].data() : nullptr;
  if constexpr (sizeof(T) == 1) {
    BlockErrors(block.taps[0].data(), block.tap_count, filter.weights.data(), west,
                block.taps[2].data(), static_cast<std::int16_t>(middle), block.target.data(),
                errors.data());
  } else {
    WideBlockErrors(block.taps[0].data(), block.tap_count, filter.weights.data(), west,
                    block.taps[2].data(), middle, block.target.data(), errors.data());
  }
}

// As BlockCosts.
template <typename T>
inline std::array<std::uint32_t, 4> QuarterCosts(const typename BlockTaps<T>::Errors& errors) {
  std::array<std::uint32_t, 4> costs{};
  if constexpr (sizeof(T) == 1) {
    BlockCosts(errors.data(), costs.data());
  } else {
    WideBlockCosts(errors.data(), costs.data());
  }
  return costs;
}

template <typename T>
void BlockTaps<T>::LoadCurrent(const WavefrontWork<T>& work, std::uint32_t frame, std::uint32_t row,
                               std::uint32_t column, std::uint32_t rows, std::uint32_t columns) {
  const PaddedFrame<const T>& current = work.frames[frame];
  const T* const above_frame = work.above[frame].data() + 8;  // has 8 pixels more on each side
  // Whole rows at once where all of them lie in the frame.
  const bool inside = row >= 2 && columns == kTapBlockSize;
  for (std::size_t tap = 0; tap < kIntraTapCount && inside; ++tap) {
    const TapOffset& offset = kCurrentTaps[tap];
    CopyCentred(current.Row(static_cast<std::int32_t>(row) + offset.row) +
                    static_cast<std::int32_t>(column) + offset.column,
                current.stride, rows, work.middle, taps[tap].data());
  }
  for (std::uint32_t y = 0; y < rows; ++y) {
    const auto at = static_cast<std::int32_t>(row + y);
    const std::size_t line = std::size_t{y} * kTapBlockSize;
    for (std::size_t tap = 0; tap < kIntraTapCount && !inside; ++tap) {
      const TapOffset& offset = kCurrentTaps[tap];
      const T* from = (at + offset.row < 0 ? above_frame : current.Row(at + offset.row)) +
                      static_cast<std::int32_t>(column) + offset.column;
      for (std::uint32_t x = 0; x < columns; ++x) {
        taps[tap][line + x] = static_cast<Value>(from[x] - work.middle);
      }
    }
    if (column == 0) {
      const Value north = taps[2][line];
      taps[0][line] = taps[1][line] = north;
      if (columns > 1) taps[1][line + 1] = taps[0][line + 1];
    }
  }
}

template <typename T>
void BlockTaps<T>::Load(const WavefrontWork<T>& work, std::uint32_t frame, std::uint32_t row,
                        std::uint32_t column, const WavefrontBlock& motion) {
  const PaddedFrame<const T>& current = work.frames[frame];
  const std::uint32_t rows = std::min(kTapBlockSize, current.rows - row);
  const std::uint32_t columns = std::min(kTapBlockSize, current.columns - column);
  tap_count = frame > 0 ? kInterTapCount : kIntraTapCount;
  if (rows < kTapBlockSize || columns < kTapBlockSize) {
    for (Line& line : taps) line.fill(0);
    target.fill(0);
  }
  LoadCurrent(work, frame, row, column, rows, columns);
  const auto copy = [&](const PaddedFrame<const T>& source, std::int32_t y, std::int32_t x,
                        Line& line) {
    if (columns == kTapBlockSize) {
      CopyCentred(source.Row(y) + x, source.stride, rows, work.middle, line.data());
      return;
    }
    for (std::uint32_t i = 0; i < rows; ++i) {
      const T* from = source.Row(y + static_cast<std::int32_t>(i)) + x;
      Value* to = &line[std::size_t{i} * kTapBlockSize];
      for (std::uint32_t k = 0; k < columns; ++k) {
        to[k] = static_cast<Value>(from[k] - work.middle);
      }
    }
  };
  const auto y0 = static_cast<std::int32_t>(row);
  const auto x0 = static_cast<std::int32_t>(column);
  copy(current, y0, x0, target);
  if (frame == 0) return;
  const std::int32_t y1 = y0 + motion.motion_row;
  const std::int32_t x1 = x0 + motion.motion_column;
  std::size_t tap = kIntraTapCount;
  for (const TapOffset& offset : kPreviousTaps) {
    copy(*work.Previous(frame), y1 + offset.row, x1 + offset.column, taps[tap++]);
  }
  const PaddedFrame<const T>* earlier = work.Earlier(frame);
  const PaddedFrame<const T>& before = earlier != nullptr ? *earlier : *work.Previous(frame);
  const std::int32_t y2 = earlier != nullptr ? y1 + motion.motion_row : y1;
  const std::int32_t x2 = earlier != nullptr ? x1 + motion.motion_column : x1;
  for (const TapOffset& offset : kEarlierTaps) {
    copy(before, y2 + offset.row, x2 + offset.column, taps[tap++]);
  }
}

}  // namespace forebay::compress
