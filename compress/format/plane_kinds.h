// First byte of a plane body: how the rest is coded.
#pragma once

#include <cstddef>

namespace forebay::compress {

inline constexpr std::byte kPlaneKindRaw{0};   // samples as they are
inline constexpr std::byte kPlaneKindZstd{1};  // difference to the previous frame, zstd
inline constexpr std::byte kPlaneKindWavefront{2};  // predicted, rANS (format/wavefront_format.h)
inline constexpr std::byte kPlaneKindBitPacked{3};  // predicted, bit planes (format/block_format.h)
inline constexpr std::byte kPlaneKindBlockRans{
    4};  // predicted, rANS by block (format/block_rans_format.h)
// As wavefront, corrected by a learned predictor (format/predictor.h); up to 8 bits.
inline constexpr std::byte kPlaneKindLearned{5};

}  // namespace forebay::compress
