// Examples for training: what a predictor sees of a pixel, and what the filter got wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/train/chunk_planes.h"

namespace forebay::compress {

struct TrainingRows {
  std::uint32_t inputs = 0;
  std::vector<std::uint8_t> values;  // [rows][inputs], each 128 larger than the input
  std::vector<std::int8_t> errors;   // [rows]

  std::size_t rows() const { return errors.size(); }
};

// Pixels of `stacks`: of first frames, and of all others. Where there are more than `rows_max` of
// either, so many of them, drawn by `seed`.
std::array<TrainingRows, 2> GatherRows(std::span<const PlaneStack> stacks, std::size_t rows_max,
                                       std::uint64_t seed);

}  // namespace forebay::compress
