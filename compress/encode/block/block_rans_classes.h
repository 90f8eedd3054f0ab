// Classes of the block-rANS encoder: which block belongs to which, and what residuals cost in them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/encode/block/block_rans_kernels.h"

namespace forebay::compress {

// Sorts sampled blocks into at most `classes` classes by turns: each block takes the class that
// codes it in the fewest bits, and each class takes the distribution of its blocks (after S. Lloyd,
// "Least squares quantization in PCM", 1982). Returns the number of low-bit planes of each class,
// and sets `costs`, which has a column for each class.
std::vector<std::uint8_t> ChooseBlockRansClasses(std::span<const BlockRansResiduals> blocks,
                                                 std::uint32_t bits, std::uint32_t classes,
                                                 BlockRansCosts& costs);

// One half of such a turn: estimates planes and costs from a given assignment. `chosen` names the
// class of each block; a number that is not below `classes` means none.
std::vector<std::uint8_t> EstimateBlockRansClasses(std::span<const BlockRansResiduals> blocks,
                                                   std::span<const std::uint8_t> chosen,
                                                   std::uint32_t bits, std::uint32_t classes,
                                                   BlockRansCosts& costs);

}  // namespace forebay::compress
