// PackCatalog: reads a catalog of packs in place from its image. OpenPackImage checks the image and
// constructs it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/catalog/catalog.h"
#include "server/catalog/pack/pack_image_format.h"
#include "server/catalog/pack/pack_table.h"
#include "server/catalog/storage/image_bytes.h"
#include "server/catalog/storage/image_section.h"

namespace forebay::catalog {

// The verified tables of an image; spans point into it.
struct PackTables {
  PackHeaderRow header;
  std::string name;
  compress::PackSchema schema;
  std::vector<FieldSpec> specs;
  std::vector<std::uint64_t> field_begins;  // first chunk of each field, and the number of chunks
  std::span<const std::byte> objects, names, extents, chunks, pieces;
  IndexedStrings keys;  // of samples; empty if they have none

  PackObjectRow Object(std::uint32_t object) const {
    return LoadAt<PackObjectRow>(objects, std::size_t{object} * sizeof(PackObjectRow));
  }
  PackExtentRow Extent(std::uint32_t extent) const {
    return LoadAt<PackExtentRow>(extents, std::size_t{extent} * sizeof(PackExtentRow));
  }
  PackChunkRow Chunk(std::uint64_t chunk) const {
    return LoadAt<PackChunkRow>(chunks, chunk * sizeof(PackChunkRow));
  }
  std::uint32_t Piece(std::uint64_t piece) const {
    return LoadAt<std::uint32_t>(pieces, piece * sizeof(std::uint32_t));
  }
};

// True if an image begins with the magic number of a catalog of packs.
bool IsPackImage(std::span<const std::byte> image);

// Checks the whole image, every chunk and key included, and makes a catalog of it. Its time grows
// with the number of chunks and keys.
Result<std::shared_ptr<const Catalog>> OpenPackImage(ImageBytes bytes);

// The FieldSpec of a field of a pack: variable fields are byte strings, others have a shape.
FieldSpec SpecOf(const compress::PackField& field);

// Thread-safe. Look-ups of a mapped image may block on the disk.
class PackCatalog final : public Catalog, public PackTable {
 public:
  PackCatalog(ImageBytes bytes, PackTables tables);

  std::string_view name() const override { return tables_.name; }
  Format format() const override { return Format::kPack; }
  std::uint64_t fingerprint() const override { return tables_.header.fingerprint; }
  std::uint64_t sample_count() const override { return tables_.header.sample_count; }
  std::uint32_t part_count() const override { return 1; }
  std::span<const FieldSpec> fields() const override { return tables_.specs; }
  std::uint32_t PartOf(FieldId field) const override;
  std::uint32_t object_count() const override { return tables_.header.object_count; }
  ObjectInfo object(ObjectId object) const override;
  std::uint32_t extent_count() const override { return tables_.header.extent_count; }
  ExtentInfo extent(ExtentId extent) const override;
  std::uint64_t total_bytes() const override { return tables_.header.total_bytes; }
  std::vector<std::string_view> ConstantNames(FieldId field) const override;
  const PackTable* packs() const override { return this; }
  Status Pieces(ExtentId extent, std::vector<Range>& pieces) const override;
  std::uint32_t PieceCount(ExtentId extent) const override;
  Result<std::string> SampleKey(SampleId sample) const override;
  std::span<const std::byte> image() const override { return bytes_.bytes(); }
  void DropResidentPages() const override { bytes_.DropResidentPages(); }

  const compress::PackSchema& schema() const override { return tables_.schema; }
  std::uint64_t chunk_count() const override { return tables_.header.chunk_count; }
  PackChunk chunk(std::uint64_t number) const override;
  ChunkGroup GroupOf(std::uint32_t field, SampleId sample) const override;

 private:
  ImageBytes bytes_;
  PackTables tables_;
  std::vector<std::uint32_t> tiles_;  // of each field
};

}  // namespace forebay::catalog
