// Masks of a chunk (docs/pack_chunk.md, section 5): which elements are holes, what to predict in
// their place, and the places themselves as run lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"

namespace forebay::compress {

// How far to look for values that mean "no value here".
enum class HoleSearch : std::uint8_t {
  kNone,      // no mask
  kDeclared,  // the fill value, and the commonest NaN or infinity
  kOutliers,  // also a frequent lowest or highest value, far from all others
};

// Returns at most kMasksMax bit patterns whose places are worth a mask. `bits` are the chunk's
// elements.
std::vector<std::uint64_t> MaskPatterns(const ChunkShape& shape,
                                        std::span<const std::uint64_t> bits, HoleSearch search);

// Gives each element flagged in `holes` a code that its neighbours predict: the last code of the
// row before it, or the code above at the beginning of a row.
void FillHoles(const ChunkGeometry& geometry, std::span<const std::uint8_t> holes,
               std::span<std::uint64_t> codes);

struct EncodedRuns {
  std::vector<std::byte> bytes;
  bool temporal = false;
};

// The run lengths of `mask` (bytes of 0 or 1), or those of its difference to itself `period`
// elements before if these take fewer bytes. `period` 0: there is no previous frame.
EncodedRuns EncodeRuns(std::span<const std::uint8_t> mask, std::size_t period);

// The places of the ones in `flags`, as gaps between them.
std::vector<std::byte> EncodePlaces(std::span<const std::uint8_t> flags);

}  // namespace forebay::compress
