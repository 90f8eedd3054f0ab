// Encodes planes for the bit-packed decoder.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/format/plane/plane_shape.h"

namespace forebay::compress {

// Returns the body of bit-packed planes without its kind byte. `samples` are as for EncodePlanes.
std::vector<std::byte> EncodeBitPacked(const PlaneShape& shape, std::span<const std::byte> samples);

}  // namespace forebay::compress
