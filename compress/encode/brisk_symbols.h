// The last step of the brisk encoder: residuals under classes become bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/encode/brisk_kernels.h"
#include "compress/encode/brisk_tables.h"

namespace forebay::compress {

struct BriskSections {
  std::vector<std::byte> planes, words, escapes, states;
};

// `codes` has a byte for each of `blocks`: class << 3 | predictor; tables[c - 1] is class c's.
BriskSections CodeBriskBlocks(std::span<const BriskResiduals> blocks,
                              std::span<const std::uint8_t> codes, std::uint32_t bits,
                              std::span<const BriskTable> tables);

}  // namespace forebay::compress
