// First byte of a plane body: how the rest is coded.
#pragma once

#include <cstddef>

namespace forebay::compress {

inline constexpr std::byte kPlaneKindRaw{0};   // samples as they are
inline constexpr std::byte kPlaneKindZstd{1};  // difference to the previous frame, zstd
inline constexpr std::byte kPlaneKindWave{2};  // predicted, rANS (format/wave_format.h)
inline constexpr std::byte kPlaneKindPacked{3};  // predicted, bit planes (format/packed_format.h)
inline constexpr std::byte kPlaneKindBrisk{4};  // predicted, rANS by block (format/brisk_format.h)
// As wave, corrected by a learned predictor (format/predictor.h); up to 8 bits.
inline constexpr std::byte kPlaneKindLearned{5};

}  // namespace forebay::compress
