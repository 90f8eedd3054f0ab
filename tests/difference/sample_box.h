// The elements of a box, out of whole samples: what every way to read one is compared with.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/decode/chunk/chunk_decoder.h"

namespace forebay::compress {

// Of range.sample_count samples of `shape`, from the first of `samples` on; dense.
std::vector<std::byte> CutBox(const ChunkShape& shape, const ChunkRange& range,
                              std::span<const std::byte> samples);

}  // namespace forebay::compress
