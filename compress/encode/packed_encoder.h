// Encodes planes for the packed decoder.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/format/plane_shape.h"

namespace forebay::compress {

// The body of packed planes, kind byte left out; `samples` as EncodePlanes takes them.
std::vector<std::byte> EncodePacked(const PlaneShape& shape, std::span<const std::byte> samples);

}  // namespace forebay::compress
