// Runs of blocks that made the same choice, and what each reads of the frames before: the part of
// temporal prediction that kernels share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

// The temporal taps that have weights. `from` is where a tap lies for the pixel at (0, 0).
template <typename T>
struct TapList {
  std::array<const T*, kTemporalTapCount> from;
  std::array<std::int16_t, kTemporalTapCount> weights;
  std::size_t count = 0;
  std::int32_t total = 0;  // of the weights

  TapList(const WavefrontOrderFrame<T>& frame, const WavefrontBlock& block) {
    const WavefrontFilter& filter = frame.plan.parameters.inter.filters[block.filter & 0x0F];
    const std::int16_t* weight = filter.weights.data() + kIntraTapCount;
    const auto take = [&](const PaddedFrame<T>& before, std::int32_t row, std::int32_t column) {
      if (*weight != 0) {
        from[count] = before.Row(row) + column;
        weights[count++] = *weight;
        total += *weight;
      }
      ++weight;
    };
    const std::int32_t y = block.motion_row;
    const std::int32_t x = block.motion_column;
    for (const TapOffset& tap : kPreviousTaps) {
      take(*frame.previous, y + tap.row, x + tap.column);
    }
    for (const TapOffset& tap : kEarlierTaps) {
      if (frame.earlier != nullptr) {
        take(*frame.earlier, 2 * y + tap.row, 2 * x + tap.column);
      } else {
        take(*frame.previous, y + tap.row, x + tap.column);
      }
    }
  }
};

// Pixels of a run, as columns and rows from the frame's corner; the last ones are not in it.
struct RunArea {
  std::uint32_t top, bottom, left, right;
};

// Calls run(block, area) for every run of the band of 64 rows that begins at row `top`.
template <typename T, typename Run>
void ForEachRun(const WavefrontOrderFrame<T>& frame, std::uint32_t top, const Run& run) {
  const std::uint32_t log2 = frame.plan.parameters.block_log2;
  const std::size_t columns = frame.plan.block_columns;
  const std::uint32_t end_row = std::min(top + kWavefrontLanes, frame.shape.rows);
  for (std::uint32_t row = top; row < end_row; row += 1U << log2) {
    const WavefrontBlock* const line = frame.blocks.data() + (row >> log2) * columns;
    for (std::size_t begin = 0; begin < columns;) {
      const WavefrontBlock& block = line[begin];
      std::size_t end = begin + 1;
      while (end < columns && (line[end].filter & 0x0F) == (block.filter & 0x0F) &&
             line[end].motion_row == block.motion_row &&
             line[end].motion_column == block.motion_column) {
        ++end;
      }
      run(block,
          RunArea{.top = row,
                  .bottom = std::min(row + (1U << log2), end_row),
                  .left = static_cast<std::uint32_t>(begin << log2),
                  .right = std::min(static_cast<std::uint32_t>(end << log2),
                                    frame.shape.columns)});
      begin = end;
    }
  }
}

// Of `lanes` lanes whose first one is `lag` steps late, those whose row has a pixel in `step`
// >= lag of a band; the others are in the band before or behind.
inline std::uint64_t LanesWithin(std::uint32_t step, std::uint32_t lag, std::uint32_t columns) {
  const auto first = [](std::uint32_t lanes) {
    return lanes >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << lanes) - 1;
  };
  const std::uint64_t begun = first((step - lag) / kWavefrontLag + 1);
  return step - lag < columns ? begun : begun & ~first((step - lag - columns) / kWavefrontLag + 1);
}

}  // namespace forebay::compress
