// Classes of the block-rANS encoder: which block belongs to which, and what residuals cost in them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/encode/block/block_rans_kernels.h"

namespace forebay::compress {

// Sorts sampled blocks into at most `classes` classes by turns: each block takes the class that
// codes it in the fewest bits, each class the distribution of its blocks (after S. Lloyd, "Least
// squares quantization in PCM", 1982). Returns each class's planes; `costs` has a column for each.
std::vector<std::uint8_t> ChooseBlockRansClasses(std::span<const BlockRansResiduals> blocks,
                                                 std::uint32_t bits, std::uint32_t classes,
                                                 BlockRansCosts& costs);

// The same from where blocks have come: `chosen` names each one's class, those not below `classes`
// belong to none.
std::vector<std::uint8_t> EstimateBlockRansClasses(std::span<const BlockRansResiduals> blocks,
                                                   std::span<const std::uint8_t> chosen,
                                                   std::uint32_t bits, std::uint32_t classes,
                                                   BlockRansCosts& costs);

}  // namespace forebay::compress
