// PackImageWriter: gathers the tables of a catalog of packs, file after file.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compress/format/pack_format.h"
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
// `scratch` says for each table. Of no use after an error. Not thread-safe.
class PackImageWriter {
 public:
  PackImageWriter(std::string name, const compress::PackSchema& schema,
                  const BuildScratch& scratch);

  Status AddPack(const PackObject& object, const PackCut& cut);
  // The keys of the next samples, where the schema is keyed.
  Status AddKeys(std::span<const std::string> keys);
  std::uint64_t sample_count() const { return header_.sample_count; }

  // The image; every sample has its key.
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
  std::deque<TableSpool> chunks_;   // rows of each field
  TableSpool pieces_;               // u32 field, u32 row among those of the field
  TableSpool key_index_;
  TableSpool keys_;
  std::uint64_t key_count_ = 0;
  TableSpool image_;
  std::optional<ChecksumStream> section_hash_;  // within a section
};

}  // namespace forebay::catalog
