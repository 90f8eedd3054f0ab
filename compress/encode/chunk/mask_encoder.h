// Masks of a chunk (docs/pack_chunk.md, section 5): which elements are holes, what to predict in
// their place, and the places themselves as run lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"

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

struct EncodedRuns {
  std::vector<std::byte> bytes;
  bool temporal = false;
};

// The runs of `mask` (bytes of 0 or 1), or of its difference to itself `period` elements before
// where those are fewer. `period` 0: no frame before.
EncodedRuns EncodeRuns(std::span<const std::uint8_t> mask, std::size_t period);

// The places of `flags`' ones as gaps.
std::vector<std::byte> EncodePlaces(std::span<const std::uint8_t> flags);

}  // namespace forebay::compress
