// Checks and fills a caller's strided memory.
#pragma once

#include <span>

#include "compress/decode/chunk/chunk_decoder.h"

namespace forebay::compress {

// kInvalidArgument where `range` leaves the chunk or `out` is too small for it.
Status CheckRange(const ChunkShape& shape, const ChunkRange& range, const StridedOutput& out);

// True where `range` takes whole samples and `out` holds them without gaps.
bool IsDense(const ChunkShape& shape, const ChunkRange& range, const StridedOutput& out);

// Copies the range's box out of `samples`: the range's samples, whole and dense. What
// CheckRange accepted.
void CopyBox(const ChunkShape& shape, const ChunkRange& range, std::span<const std::byte> samples,
             const StridedOutput& out);

}  // namespace forebay::compress
