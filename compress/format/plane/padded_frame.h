// A frame in memory with its edge pixels repeated around it, so that displaced neighbours need
// no bounds checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

// A view; kWavefrontMargin pixels on each side belong to it. T is uint8_t or uint16_t.
template <typename T>
struct PaddedFrame {
  T* origin = nullptr;  // row 0, column 0
  std::uint32_t rows = 0, columns = 0;
  std::size_t stride = 0;  // samples

  static std::size_t Samples(std::uint32_t rows, std::uint32_t columns) {
    return Stride(columns) * (rows + 2 * std::size_t{kWavefrontMargin});
  }
  static std::size_t Stride(std::uint32_t columns) {
    return (columns + 2 * std::size_t{kWavefrontMargin} + 63) / 64 * 64;
  }
  // Over memory of Samples() samples.
  static PaddedFrame Over(T* memory, std::uint32_t rows, std::uint32_t columns) {
    const std::size_t stride = Stride(columns);
    return {memory + kWavefrontMargin * stride + kWavefrontMargin, rows, columns, stride};
  }

  T* Row(std::int32_t row) const {
    return origin + static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(stride);
  }
  T& At(std::int32_t row, std::int32_t column) const { return Row(row)[column]; }

  // Repeats the edges into the margin.
  void Extend() const {
    const auto margin = static_cast<std::int32_t>(kWavefrontMargin);
    for (std::uint32_t row = 0; row < rows; ++row) {
      T* const line = Row(static_cast<std::int32_t>(row));
      std::fill(line - margin, line, line[0]);
      std::fill(line + columns, line + columns + margin, line[columns - 1]);
    }
    const std::size_t width = columns + 2 * std::size_t{kWavefrontMargin};
    const std::int32_t last = static_cast<std::int32_t>(rows) - 1;
    for (std::int32_t i = 1; i <= margin; ++i) {
      std::copy_n(Row(0) - margin, width, Row(-i) - margin);
      std::copy_n(Row(last) - margin, width, Row(last + i) - margin);
    }
  }
};

}  // namespace forebay::compress
