// Which elements are holes, and what to predict in their place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/chunk_shape.h"

namespace forebay::compress {

// How far to look for values that mean "nothing here".
enum class HoleSearch : std::uint8_t {
  kNone,      // no mask
  kDeclared,  // the fill value, and the commonest NaN or infinity
  kOutliers,  // also a frequent lowest or highest value, far from all others
};

// At most kMasksMax patterns whose places are worth a mask. `bits` are the chunk's elements.
std::vector<std::uint64_t> MaskPatterns(const ChunkShape& shape,
                                        std::span<const std::uint64_t> bits, HoleSearch search);

// Gives each element flagged in `holes` a code that its neighbours predict: the row's last one
// before it, or the one above at the row's begin.
void FillHoles(const ChunkGeometry& geometry, std::span<const std::uint8_t> holes,
               std::span<std::uint64_t> codes);

}  // namespace forebay::compress
