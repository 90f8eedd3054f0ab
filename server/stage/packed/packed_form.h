// PackedForm: how the extents of a data set of fixed records are stored on the tiers if they are
// compressed at staging (docs/packed_extent.md): which samples a chunk holds, the key of an extent,
// and where a sample lies. All of it is computed from sizes. Files on the GFS are not changed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/stage/packed/compression.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

// Part of the keys of packed extents: one of another version is not found. The nodes of a job must
// have the same.
inline constexpr std::uint64_t kPackedFormVersion = 3;

// The chunks that are decoded together: [first_chunk, first_chunk + chunk_count) of an extent. They
// are all tiles of a run of samples.
struct PackedUnit {
  ExtentId extent;
  std::uint32_t first_chunk = 0, chunk_count = 0;
  std::uint64_t first_sample = 0;  // the data set's number
  std::uint32_t sample_count = 0;
};

// A chunk of an extent, as it follows from the sizes of samples and tiles.
struct PackedChunk {
  std::uint32_t field = 0, tile = 0;
  std::uint32_t first_sample = 0;  // counted from the extent's first
  std::uint32_t sample_count = 0;
  std::uint64_t raw_offset = 0, raw_bytes = 0;  // where its elements lie in the raw image
};

// Immutable and thread-safe.
class PackedForm {
 public:
  // kFailedPrecondition, with the reason in a few words, where the data set cannot have this
  // form: it takes parts that supply one field of fixed records each, no record in two extents.
  // `compression` is not kOff.
  static Result<std::shared_ptr<const PackedForm>> Create(
      std::shared_ptr<const catalog::Catalog> catalog, Compression compression);

  const catalog::Catalog& catalog() const { return *catalog_; }
  Compression compression() const { return compression_; }
  compress::Profile profile() const;
  // Field f is the catalog's field f.
  const compress::PackSchema& schema() const { return schema_; }

  // The key of an extent in this form. It differs from the key of the raw extent, and of the same
  // extent in another form or profile.
  tier::ExtentKey Key(const tier::ExtentKey& raw) const;
  // The identity that goes into the checksums of the chunks of an extent; `key` is its packed key.
  static std::uint64_t IdentityOf(const tier::ExtentKey& key);

  std::uint32_t ChunkCount(ExtentId extent) const;
  // Pieces of the image: its directory and its chunks.
  std::uint32_t PieceCount(ExtentId extent) const { return ChunkCount(extent) + 1; }
  // `number` < ChunkCount(extent).
  PackedChunk ChunkOf(ExtentId extent, std::uint32_t number) const;
  // Where `sample` of `field` lies; both exist.
  PackedUnit UnitOf(std::uint32_t field, SampleId sample) const;
  // What an extent takes at most, whatever it holds.
  std::uint64_t ImageBytesMax(ExtentId extent) const;

 private:
  PackedForm(std::shared_ptr<const catalog::Catalog> catalog, Compression compression);
  Status AddField(FieldId field);
  Status CheckExtents() const;
  const compress::PackField& FieldOf(ExtentId extent) const;

  const std::shared_ptr<const catalog::Catalog> catalog_;
  const Compression compression_;
  compress::PackSchema schema_;
  std::vector<std::uint32_t> part_fields_;  // part -> field
};

}  // namespace forebay::stage
