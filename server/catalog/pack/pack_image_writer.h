// PackImageWriter: collects the tables of a catalog of packs, file after file, and writes its
// image.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/checksum.h"
#include "proto/contract/result.h"
#include "server/catalog/pack/pack_cut.h"
#include "server/catalog/pack/pack_image_format.h"
#include "server/catalog/storage/image_bytes.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

// A pack of at least one sample. Borrowed for the call.
struct PackObject {
  std::string_view path;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t identity = 0;
  std::uint64_t samples = 0;
  std::span<const compress::ChunkEntry> chunks;  // of a checked index
};

// Use: AddPack and AddKeys for each file, then Finish. Checks published limits. Memory: what
// `scratch` allows for each table; the tables of chunks, one per field, share the memory of one.
// Unusable after an error. Not thread-safe.
class PackImageWriter {
 public:
  PackImageWriter(std::string name, const compress::PackSchema& schema,
                  const BuildScratch& scratch);

  Status AddPack(const PackObject& object, const PackCut& cut);
  // Adds the keys of the next samples. Only for a schema with keys.
  Status AddKeys(std::span<const std::string> keys);
  std::uint64_t sample_count() const { return header_.sample_count; }

  // Returns the image. If the schema has keys, every sample's key must have been added.
  Result<ImageBytes> Finish();

 private:
  Status AddObject(const PackObject& object);
  Status AddExtents(const PackObject& object, const PackCut& cut);
  Status AddChunks(const PackObject& object, const PackCut& cut, std::uint32_t first_extent);
  Status Put(std::span<const std::byte> bytes);
  Status BeginSection(PackSection kind);
  Status EndSection(PackSection kind);
  Status PutSpool(PackSection kind, TableSpool& table);
  Status PutChunks();
  Status PutPieces(std::span<const std::uint32_t> field_begins);

  const std::string name_;
  compress::PackSchema schema_;
  PackHeaderRow header_;
  TableSpool objects_;
  TableSpool names_;
  TableSpool extents_;
  std::deque<TableSpool> chunks_;   // one table of PackChunkRow per field
  TableSpool pieces_;               // FieldRow each, in the order of the image's pieces
  TableSpool key_index_;
  TableSpool keys_;
  std::uint64_t key_count_ = 0;
  TableSpool image_;
  std::optional<ChecksumStream> section_hash_;  // set between BeginSection and EndSection
};

}  // namespace forebay::catalog
