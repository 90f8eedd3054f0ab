// Encodes planes for the brisk decoder.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/format/plane_shape.h"

namespace forebay::compress {

// The body of brisk planes, kind byte left out; `samples` as EncodePlanes takes them.
std::vector<std::byte> EncodeBrisk(const PlaneShape& shape, std::span<const std::byte> samples);

}  // namespace forebay::compress
