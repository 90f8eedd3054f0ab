// First byte of a plane body: how the rest is coded.
#pragma once

#include <cstddef>

namespace forebay::compress {

inline constexpr std::byte kPlaneKindRaw{0};   // samples as they are
inline constexpr std::byte kPlaneKindZstd{1};  // difference to the previous frame, zstd
// 2 and above belong to the predictive codec (docs/pack_planes.md).

}  // namespace forebay::compress
