// What a learned predictor looks at, in raster order (docs/pack_planes.md, "Learned"): for the
// reference decoder, the encoder and the trainer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/format/plane/padded_frame.h"
#include "compress/format/plane/predictor.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

inline constexpr std::size_t kDisplacedTapCount = 9;  // the first of kPreviousTaps
// Errors of the previous frame: at the same place, and beside it.
inline constexpr std::array<std::int8_t, 3> kPreviousErrorColumns = {0, -1, 1};

static_assert(kIntraInputs == kIntraTapCount + 2 * kErrorTapCount);
static_assert(kInterInputs ==
              kIntraInputs + kDisplacedTapCount + 1 + kPreviousErrorColumns.size() + 1);

// A pixel less its filter's value, as other pixels' inputs see it.
inline std::int8_t LearnedError(std::int32_t pixel, std::int32_t value) {
  return static_cast<std::int8_t>(std::clamp(pixel - value, -127, 127));
}

// What is known of a frame's pixels, [rows][columns]. The last three are of inter frames.
struct LearnedFrame {
  std::uint32_t rows = 0, columns = 0;
  const std::int8_t* errors = nullptr;
  const std::uint8_t* displaced = nullptr;  // the previous frame, each block displaced
  const std::uint8_t* before = nullptr;  // the one before that, by twice the motion
  const std::int8_t* previous_errors = nullptr;
};

// Writes the inputs of the pixel at (row, column), each 128 larger, into every `stride`-th byte of
// `to`. `taps` are the pixel's CurrentNeighbours, `value` what its filter predicts.
inline void SetLearnedInputs(const LearnedFrame& frame,
                             const std::array<std::int32_t, kIntraTapCount>& taps,
                             std::int32_t value, std::int32_t row, std::int32_t column,
                             std::size_t stride, std::uint8_t* to) {
  const auto rows = static_cast<std::int32_t>(frame.rows);
  const auto columns = static_cast<std::int32_t>(frame.columns);
  const auto put = [&](std::int32_t input) {
    *to = static_cast<std::uint8_t>(input + 128);
    to += stride;
  };
  const auto neighbour = [&](std::int32_t pixel) { put(std::clamp(pixel - value, -128, 127)); };
  const auto error_at = [&](const std::int8_t* errors, std::int32_t y, std::int32_t x) {
    const bool inside = y >= 0 && x >= 0 && x < columns;
    return inside ? std::int32_t{errors[std::ptrdiff_t{y} * columns + x]} : 0;
  };
  for (const std::int32_t tap : taps) neighbour(tap);
  std::array<std::int32_t, kErrorTapCount> errors;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    errors[i] = error_at(frame.errors, row + kCurrentTaps[i].row, column + kCurrentTaps[i].column);
  }
  for (const std::int32_t error : errors) put(error);
  for (const std::int32_t error : errors) put(std::abs(error));
  if (frame.displaced == nullptr) return;
  for (std::size_t i = 0; i < kDisplacedTapCount; ++i) {
    const std::int32_t y = std::clamp(row + kPreviousTaps[i].row, 0, rows - 1);
    const std::int32_t x = std::clamp(column + kPreviousTaps[i].column, 0, columns - 1);
    neighbour(frame.displaced[std::ptrdiff_t{y} * columns + x]);
  }
  neighbour(frame.before[std::ptrdiff_t{row} * columns + column]);
  for (const std::int8_t beside : kPreviousErrorColumns) {
    put(std::abs(error_at(frame.previous_errors, row, column + beside)));
  }
  put(error_at(frame.previous_errors, row, column));
}

// Row `row` of `source`, each block displaced by `times` its motion. `blocks` are the blocks of
// that row, of 2^log2 columns each.
inline void DisplaceRow(const PaddedFrame<const std::uint8_t>& source, const WavefrontBlock* blocks,
                        std::uint32_t log2, std::int32_t times, std::int32_t row,
                        std::uint8_t* to) {
  for (std::uint32_t column = 0; column < source.columns; column += 1U << log2, ++blocks) {
    const std::uint8_t* const from = source.Row(row + times * blocks->motion_row) +
                                     static_cast<std::int32_t>(column) +
                                     times * blocks->motion_column;
    std::copy_n(from, std::min(1U << log2, source.columns - column), to + column);
  }
}

}  // namespace forebay::compress
