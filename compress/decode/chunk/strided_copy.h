// Checks ranges of chunks against strided memory, and copies them there.
#pragma once

#include <span>

#include "compress/decode/chunk/chunk_decoder.h"

namespace forebay::compress {

// Errors: kInvalidArgument if `range` is not within the chunk, or `out` is too small for it.
Status CheckRange(const ChunkShape& shape, const ChunkRange& range, const StridedOutput& out);

// True where `range` takes whole samples and `out` holds them without gaps.
bool IsDense(const ChunkShape& shape, const ChunkRange& range, const StridedOutput& out);

// Copies the range's box to `out`. `samples` are the whole samples of the range, one after the
// other. CheckRange must have accepted the range.
void CopyBox(const ChunkShape& shape, const ChunkRange& range, std::span<const std::byte> samples,
             const StridedOutput& out);

}  // namespace forebay::compress
