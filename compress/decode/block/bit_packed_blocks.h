// One row of bit-packed blocks, and the kernels that decode it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/format/plane/block_format.h"

namespace forebay::compress {

// A row of blocks: 4 rows of samples, `blocks` x 16 columns. `above` is the row over them and
// `above_previous` the same of the previous frame, both zeros at the frame's top; `previous` is
// null in the first frame. All have `stride` samples from row to row.
template <typename T>
struct BitPackedRow {
  const std::uint8_t* codes = nullptr;  // checked: widths within the sample's, planes all there
  std::uint32_t blocks = 0;
  T* samples = nullptr;
  const T* above = nullptr;
  const T* previous = nullptr;
  const T* above_previous = nullptr;
  std::size_t stride = 0;
  T mask = 0;  // of the valid bits
};

// Decodes a row of blocks from its bit planes and returns where the next row's begin. The
// reference, for every sample size.
template <typename T>
const std::byte* DecodeBitPackedRow(const BitPackedRow<T>& row, const std::byte* planes);

// The same in AVX2 and in AVX-512, for samples of up to 8 bits.
const std::byte* DecodeBitPackedRowAvx2(const BitPackedRow<std::uint8_t>& row,
                                        const std::byte* planes);
const std::byte* DecodeBitPackedRowAvx512(const BitPackedRow<std::uint8_t>& row,
                                          const std::byte* planes);

}  // namespace forebay::compress
