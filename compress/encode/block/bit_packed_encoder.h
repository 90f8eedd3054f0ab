// Encodes planes for the bit-packed decoder.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/format/plane/plane_shape.h"

namespace forebay::compress {

// The body of bit-packed planes, kind byte left out; `samples` as EncodePlanes takes them.
std::vector<std::byte> EncodeBitPacked(const PlaneShape& shape, std::span<const std::byte> samples);

}  // namespace forebay::compress
