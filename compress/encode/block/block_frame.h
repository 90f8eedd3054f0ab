// A frame cut into the blocks of bit-packed and block-rANS planes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "compress/format/plane/block_format.h"
#include "compress/format/plane/plane_shape.h"

namespace forebay::compress {

// A frame in whole blocks, a column and a row of zeros before its samples. Beyond the frame its
// last column and row go on.
class BlockFrame {
 public:
  // Frame `frame` of `samples` ([frames][rows][columns], at any address).
  BlockFrame(const PlaneShape& shape, std::span<const std::byte> samples, std::uint32_t frame)
      : stride_(std::size_t{CountBlocks(shape.columns, kBlockColumns)} * kBlockColumns + 1) {
    const std::size_t lines = std::size_t{CountBlocks(shape.rows, kBlockRows)} * kBlockRows;
    values_.resize(stride_ * (lines + 1));
    const std::size_t row_bytes = std::size_t{shape.columns} * shape.sample_bytes();
    for (std::size_t y = 0; y < lines; ++y) {
      const std::size_t row = std::min<std::size_t>(y, shape.rows - 1);
      const std::byte* const from =
          samples.data() + (std::size_t{frame} * shape.rows + row) * row_bytes;
      std::uint16_t* const to = &values_[(y + 1) * stride_ + 1];
      if (shape.sample_bytes() == 1) {
        for (std::uint32_t x = 0; x < shape.columns; ++x) {
          to[x] = std::to_integer<std::uint8_t>(from[x]);
        }
      } else {
        std::memcpy(to, from, row_bytes);
      }
      std::fill(to + shape.columns, to + stride_ - 1, to[shape.columns - 1]);
    }
  }

  // The first sample of a block; rows lie stride() apart.
  const std::uint16_t* Block(std::uint32_t row, std::uint32_t column) const {
    return &values_[(std::size_t{row} * kBlockRows + 1) * stride_ +
                    std::size_t{column} * kBlockColumns + 1];
  }
  std::size_t stride() const { return stride_; }

 private:
  std::size_t stride_;
  std::vector<std::uint16_t> values_;
};

}  // namespace forebay::compress
