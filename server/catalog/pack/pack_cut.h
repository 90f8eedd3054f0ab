// CutPack: cuts a pack into extents between chunks. PackBuilder calls it for each file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::catalog {

// A range of chunk records. Offset and sample numbers are relative to the file.
struct PackExtent {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint32_t chunk_count = 0;
  std::uint64_t first_sample = 0;  // the smallest range that covers the samples of all its chunks
  std::uint32_t sample_count = 0;
};

struct PackCut {
  std::vector<std::uint32_t> order;  // the chunks in order of their offsets
  std::vector<PackExtent> extents;   // each takes the next chunk_count of them
};

// Cuts between records. An extent has at most `extent_bytes`, or one record if that is larger, and
// at most limits::kSamplesPerExtentMax chunks and samples. The cut falls where all fields have
// reached the same sample, if that leaves less than an eighth of `extent_bytes` unused. Bytes
// between two chunks, such as keys, belong to an extent only if both chunks do.
//
// `chunks` come from a checked index. Error: kDataLoss if records overlap. Memory: 4 bytes per
// chunk, 32 per extent.
Result<PackCut> CutPack(const compress::PackSchema& schema,
                        std::span<const compress::ChunkEntry> chunks, std::uint64_t extent_bytes);

}  // namespace forebay::catalog
