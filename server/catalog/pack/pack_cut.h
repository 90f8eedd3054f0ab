// How the chunks of a pack become extents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::catalog {

// The records from offset on; samples are the file's.
struct PackExtent {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint32_t chunk_count = 0;
  std::uint64_t first_sample = 0;  // the smallest range that covers what any chunk holds
  std::uint32_t sample_count = 0;
};

struct PackCut {
  std::vector<std::uint32_t> order;  // the chunks in order of their offsets
  std::vector<PackExtent> extents;   // each takes the next chunk_count of them
};

// Cuts between records: extents of at most `extent_bytes`, or of one record where that is larger,
// and of at most limits::kSamplesPerExtentMax chunks and samples. Cuts where all fields have come
// to the same sample if that leaves less than an eighth of `extent_bytes` unused. What lies
// between two chunks, as keys do, is in an extent only where both are.
//
// `chunks` are those of a checked index. Errors: kDataLoss where records overlap. Memory: 4 bytes
// per chunk, 32 per extent.
Result<PackCut> CutPack(const compress::PackSchema& schema,
                        std::span<const compress::ChunkEntry> chunks, std::uint64_t extent_bytes);

}  // namespace forebay::catalog
