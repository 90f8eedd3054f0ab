// Inner loops of the brisk encoder. All are exact: no order of additions matters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/format/brisk_format.h"

namespace forebay::compress {

inline constexpr std::size_t kBriskPredictors = 8;
// Residuals as costs see them: -128 .. 127 as bytes, then four to an octave, of either sign.
inline constexpr std::size_t kBriskBuckets = 256 + 2 * 64;
inline constexpr std::size_t kBriskCostColumns = 16;  // a column a class
inline constexpr std::uint32_t kBriskCostUnit = 32;   // of a bit
inline constexpr std::uint32_t kBriskCostMax = 1023;  // a block's sum stays below 2^16

using BriskResiduals = std::array<std::int16_t, kBriskLanes>;  // signed, of a block
using BriskCandidates = std::array<BriskResiduals, kBriskPredictors>;
using BriskCostLine = std::array<std::uint16_t, kBriskCostColumns>;
using BriskCosts = std::array<BriskCostLine, kBriskBuckets>;  // [bucket][class]

// What each predictor leaves of a block. Above and left of both blocks lie samples or zeros, rows
// are `stride` apart; `previous` may be `block`'s own frame where there is none before: the
// temporal half is then of no use.
void BriskPredict(const std::uint16_t* block, const std::uint16_t* previous, std::size_t stride,
                  std::uint32_t bits, BriskCandidates& candidates);

// About 256 times the bits that residuals need, 0 where all are 0.
std::uint32_t BriskSize(const BriskResiduals& residuals);

// The cost of a block in each class.
void BriskBlockCosts(const BriskResiduals& residuals, bool wide, const BriskCosts& costs,
                     BriskCostLine& sums);

std::size_t BriskBucket(std::int32_t residual);

}  // namespace forebay::compress
