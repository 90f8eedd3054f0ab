// The entropy stage of the block-rANS encoder: turns residuals and classes into bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/encode/block/block_rans_kernels.h"
#include "compress/encode/block/block_rans_tables.h"

namespace forebay::compress {

struct BlockRansSections {
  std::vector<std::byte> planes, words, escapes, states;
};

// `codes` has a byte for each of `blocks`: class << 3 | predictor; tables[c - 1] is class c's.
BlockRansSections CodeBlockRansBlocks(std::span<const BlockRansResiduals> blocks,
                                      std::span<const std::uint8_t> codes, std::uint32_t bits,
                                      std::span<const BlockRansTable> tables);

}  // namespace forebay::compress
