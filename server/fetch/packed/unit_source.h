// UnitSource: where the samples of a packed data set lie: in packs, whose catalog knows each chunk,
// or in extents that were compressed at staging, whose directories do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "proto/contract/result.h"
#include "server/catalog/pack/pack_table.h"
#include "server/stage/packed/packed_form.h"
#include "server/tier/extent_cache.h"

namespace forebay::fetch {

// A run of samples of one field: what is decoded at once.
struct UnitPlace {
  std::uint64_t number = 0;  // of its first chunk; no two units have the same
  std::uint32_t chunk_count = 0;
  ExtentId extent;           // where its first chunk lies, as this piece
  std::uint32_t piece = 0;
  std::uint64_t first_sample = 0;  // the data set's number
  std::uint32_t sample_count = 0;
};

// Borrows the catalog and the form. Not thread-safe.
class UnitSource {
 public:
  // `form`: of a data set that was compressed at staging. Null: `catalog` is one of packs.
  static std::unique_ptr<UnitSource> Of(const catalog::Catalog& catalog,
                                        const stage::PackedForm* form);
  virtual ~UnitSource() = default;

  virtual const compress::PackSchema& schema() const = 0;
  // Where `sample` of `field` lies; both exist.
  virtual UnitPlace UnitOf(std::uint32_t field, SampleId sample) const = 0;
  // Where chunk `index` of the unit lies.
  virtual ExtentId ExtentOf(const UnitPlace& unit, std::uint32_t index) const = 0;

  // With so many bytes an extent's image begins that must be opened before ChunkOf of a chunk in
  // it; 0: none. They are its piece 0.
  virtual std::uint64_t DirectoryBytes(ExtentId) const { return 0; }
  // kDataLoss where it is not the extent's. Borrows the bytes until the next one is opened.
  virtual Status OpenDirectory(const tier::ResidentExtent&, std::span<const std::byte>) {
    return {};
  }
  // kDataLoss where it would lie outside of its extent.
  virtual Result<catalog::PackChunk> ChunkOf(const UnitPlace& unit,
                                             std::uint32_t index) const = 0;
  // Whether the chunks were made by the daemon, which can make them again from the GFS.
  virtual bool IsMadeHere() const { return false; }
};

}  // namespace forebay::fetch
