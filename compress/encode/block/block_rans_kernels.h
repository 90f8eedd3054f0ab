// Inner loops of the block-rANS encoder. Sums are of integers, so every order of additions gives
// the same result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/format/plane/block_rans_format.h"

namespace forebay::compress {

inline constexpr std::size_t kBlockPredictors = 8;
// Residuals as costs see them: -128 .. 127 as bytes, then four to an octave, of either sign.
inline constexpr std::size_t kBlockRansBuckets = 256 + 2 * 64;
inline constexpr std::size_t kBlockRansCostColumns = 16;  // a column a class
inline constexpr std::uint32_t kBlockRansCostUnit = 32;   // of a bit
inline constexpr std::uint32_t kBlockRansCostMax = 1023;  // a block's sum stays below 2^16

using BlockRansResiduals = std::array<std::int16_t, kBlockRansLanes>;  // signed, of a block
using BlockRansCandidates = std::array<BlockRansResiduals, kBlockPredictors>;
using BlockRansCostLine = std::array<std::uint16_t, kBlockRansCostColumns>;
using BlockRansCosts = std::array<BlockRansCostLine, kBlockRansBuckets>;  // [bucket][class]

// Computes the residuals of a block under each predictor. Samples or zeros lie above and to the
// left of both blocks; rows are `stride` apart. Without a previous frame, `previous` may be the
// block itself, and the four temporal candidates are meaningless.
void BlockRansPredict(const std::uint16_t* block, const std::uint16_t* previous, std::size_t stride,
                      std::uint32_t bits, BlockRansCandidates& candidates);

// An estimate of the bits that residuals need, times 256; 0 if all are 0.
std::uint32_t BlockRansSize(const BlockRansResiduals& residuals);

// The cost of a block in each class.
void BlockRansBlockCosts(const BlockRansResiduals& residuals, bool wide,
                         const BlockRansCosts& costs, BlockRansCostLine& sums);

std::size_t BlockRansBucket(std::int32_t residual);

}  // namespace forebay::compress
