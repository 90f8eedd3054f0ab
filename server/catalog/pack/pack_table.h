// PackTable: where the chunks of a data set of packs lie (docs/pack.md). The files of a data set
// are numbered through: sample s of the data set is sample s - sample_base of a file.
#pragma once

#include <cstdint>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/ids.h"
#include "proto/contract/result.h"

namespace forebay::catalog {

// A chunk's record and where it lies. It is one piece of its extent: bytes [image_offset,
// image_offset + bytes()) of the extent's image.
struct PackChunk {
  compress::ChunkEntry entry;      // as in the file's index; samples and offset count in the file
  std::uint64_t identity = 0;      // compress::PackIdentity of its file
  std::uint64_t sample_base = 0;   // number in the data set of the file's first sample
  ExtentId extent;
  std::uint32_t piece = 0;         // its number in Catalog::Pieces(extent)
  std::uint32_t image_offset = 0;  // within the extent

  std::uint64_t bytes() const { return entry.head_bytes + entry.payload_bytes; }
  std::uint64_t first_sample() const { return sample_base + entry.first_sample; }
};

// Chunks [first, first + count) of the table, which must be decoded for one sample of a field: all
// tiles of a run of samples, in order, or all parts of one long byte string.
struct ChunkGroup {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};

// Thread-safe. It is part of a catalog and lives as long as that catalog.
class PackTable {
 public:
  virtual ~PackTable() = default;

  // The schema of all files, without provenance.
  virtual const compress::PackSchema& schema() const = 0;
  virtual std::uint64_t chunk_count() const = 0;
  // Requires `number` < chunk_count(). Chunks are sorted by field, sample, tile and part.
  virtual PackChunk chunk(std::uint64_t number) const = 0;
  // Returns the chunks that hold `sample` of `field`. Both must exist.
  virtual ChunkGroup GroupOf(std::uint32_t field, SampleId sample) const = 0;
};

}  // namespace forebay::catalog
