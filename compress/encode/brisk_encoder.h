// Encodes planes for the brisk decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/plane_shape.h"

namespace forebay::compress {

// kRefined takes twice as long and finds about one part in a hundred.
enum class BriskEffort : std::uint8_t { kOnce, kRefined };

// The body of brisk planes, kind byte left out; `samples` as EncodePlanes takes them.
std::vector<std::byte> EncodeBrisk(const PlaneShape& shape, std::span<const std::byte> samples,
                                   BriskEffort effort = BriskEffort::kOnce);

}  // namespace forebay::compress
