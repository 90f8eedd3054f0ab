// Estimates the size of a stack of planes without encoding it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/format/plane/plane_shape.h"

namespace forebay::compress {

// An estimate, in bytes, of `codes` (dense, below 2^bits, bits up to 32; shape.bits is not looked
// at) after prediction row by row from the left, the median edge detector or the frame before.
// Large stacks are judged by a part of their rows. Comparable between codes of equal shape.
std::size_t EstimatePlaneBytes(const PlaneShape& shape, std::uint32_t bits,
                               std::span<const std::uint32_t> codes);

}  // namespace forebay::compress
