// Checks the image of a catalog of packs, every row of it. Checksums find damage but not forgery,
// so each number is also compared with what it indexes. Three tables refer to each other: a chunk
// names its extent and its piece, a piece names a chunk, an extent names its pieces. They are
// proved to agree, so that PackCatalog follows them without checks.
#include "server/catalog/pack/pack_image_checker.h"

#include <algorithm>
#include <array>
#include <string>

#include "compress/decode/pack/chunk_record.h"
#include "compress/format/pack/chunk_coverage.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/limits.h"
#include "server/catalog/storage/image_section.h"

namespace forebay::catalog {
namespace {

constexpr std::array<std::string_view, kPackSectionCount> kPackSectionNames = {
    "meta", "objects", "names", "extents", "chunks", "pieces", "key index", "keys"};

// Run() is the only entry; each check relies on the ones before it.
class PackImageChecker {
 public:
  explicit PackImageChecker(std::span<const std::byte> image) : image_(image) {}

  Result<PackTables> Run() {
    FOREBAY_TRY(CheckHeader());
    FOREBAY_TRY(CheckSections());
    FOREBAY_TRY(ReadMeta());
    FOREBAY_TRY(CheckObjects());
    FOREBAY_TRY(CheckExtents());
    FOREBAY_TRY(CheckChunks());
    FOREBAY_TRY(CheckPieces());
    FOREBAY_TRY(CheckKeys());
    return std::move(tables_);
  }

 private:
  Status CheckHeader();
  Status CheckCounts() const;
  Result<std::span<const std::byte>> Section(PackSection kind) const;
  Status CheckSections();
  Status ReadMeta();
  Status CheckObjects();
  Status CheckExtents();
  Status CheckExtent(std::uint32_t extent, const PackExtentRow& row) const;
  Status CheckChunks();
  Status CheckPlace(std::uint64_t chunk, const PackChunkRow& row) const;
  Status CheckPieces() const;
  Status CheckExtentPieces(std::uint32_t extent, const PackExtentRow& row) const;
  Status CheckKeys();

  std::uint64_t OffsetOf(PackSection kind) const { return tables_.header.section(kind).offset; }
  template <typename Row>
  Error BadRow(PackSection kind, std::uint64_t number, std::string_view reason) const {
    return DamagedImage(OffsetOf(kind) + number * sizeof(Row), reason);
  }
  Error BadExtent(std::uint32_t extent, std::string_view reason) const {
    return BadRow<PackExtentRow>(
        PackSection::kExtents, extent,
        "extent " + std::to_string(extent) + " " + std::string(reason));
  }
  Error BadChunk(std::uint64_t chunk, std::string_view reason) const {
    return BadRow<PackChunkRow>(PackSection::kChunks, chunk,
                                "chunk " + std::to_string(chunk) + " " + std::string(reason));
  }

  std::span<const std::byte> image_;
  PackTables tables_;
};

// After this, the header's counts bound every loop over the tables.
Status PackImageChecker::CheckHeader() {
  FOREBAY_TRY(CheckHoldsHeader(image_));
  tables_.header = LoadAt<PackHeaderRow>(image_, 0);
  const PackHeaderRow& header = tables_.header;
  FOREBAY_TRY(CheckImageHead(image_, {.kind = "catalog of packs",
                                      .has_magic = header.magic == kPackCatalogMagic,
                                      .matches_hash = HashOf(header) == header.hash,
                                      .version = header.version,
                                      .version_read = kPackCatalogVersion,
                                      .image_bytes = header.image_bytes}));
  return CheckCounts();
}

Status PackImageChecker::CheckCounts() const {
  const PackHeaderRow& header = tables_.header;
  if (header.sample_count == 0 || header.sample_count > limits::kSampleCountMax ||
      header.object_count == 0 || header.object_count > limits::kPackShardsMax ||
      header.extent_count == 0 || header.extent_count > limits::kExtentCountMax ||
      header.field_count == 0 || header.field_count > limits::kFieldCountMax ||
      // Pieces name chunks in 32 bits.
      header.chunk_count == 0 || header.chunk_count > 0xFFFF'FFFF) {
    return DamagedImage(12, "a count is zero or exceeds its published limit");
  }
  return {};
}

Result<std::span<const std::byte>> PackImageChecker::Section(PackSection kind) const {
  return SectionBytes(image_, tables_.header.section(kind),
                      kPackSectionNames[static_cast<std::size_t>(kind)]);
}

// After this, each table has exactly as many rows as the header says, so a row number below the
// count can be read.
Status PackImageChecker::CheckSections() {
  const PackHeaderRow& header = tables_.header;
  FOREBAY_ASSIGN(tables_.objects, Section(PackSection::kObjects));
  FOREBAY_ASSIGN(tables_.names, Section(PackSection::kNames));
  FOREBAY_ASSIGN(tables_.extents, Section(PackSection::kExtents));
  FOREBAY_ASSIGN(tables_.chunks, Section(PackSection::kChunks));
  FOREBAY_ASSIGN(tables_.pieces, Section(PackSection::kPieces));
  FOREBAY_ASSIGN(tables_.keys.index, Section(PackSection::kKeyIndex));
  FOREBAY_ASSIGN(tables_.keys.strings, Section(PackSection::kKeys));
  // Computed again and not believed, because clients and tokens name a catalog by it.
  if (FingerprintOf(header) != header.fingerprint) {
    return DamagedImage(40, "fingerprint does not match the tables");
  }
  // The products cannot wrap: CheckCounts has bounded every factor.
  if (tables_.objects.size() != header.object_count * sizeof(PackObjectRow) ||
      tables_.extents.size() != header.extent_count * sizeof(PackExtentRow) ||
      tables_.chunks.size() != header.chunk_count * sizeof(PackChunkRow) ||
      tables_.pieces.size() != header.chunk_count * sizeof(std::uint32_t)) {
    return DamagedImage(48, "a table's size does not match the header's counts");
  }
  return {};
}

// Reads the data set's name and the schema, with the parser that reads the start of a pack.
Status PackImageChecker::ReadMeta() {
  FOREBAY_ASSIGN(const std::span<const std::byte> meta, Section(PackSection::kMeta));
  const std::uint64_t offset = OffsetOf(PackSection::kMeta);
  ByteReader reader(meta);
  tables_.name = std::string(reader.ReadString(limits::kNameBytesMax));
  const std::span<const std::byte> start = meta.subspan(reader.offset());
  if (!reader.ok() || tables_.name.empty() || start.size() < compress::kPackHeaderBytes) {
    return DamagedImage(offset + reader.offset(), "the name or the schema is malformed");
  }
  // The size is computed from the header alone first, so that ReadPackStart gets exactly the bytes
  // that belong to the schema.
  const auto start_bytes = compress::PackStartBytes(start.first(compress::kPackHeaderBytes));
  if (!start_bytes.has_value() || *start_bytes != start.size()) {
    return DamagedImage(offset + reader.offset(), "the schema has the wrong size");
  }
  auto schema = compress::ReadPackStart(start);
  if (!schema.has_value()) {
    return DamagedImage(offset + reader.offset(), schema.error().message());
  }
  // Decoders allocate memory in proportion to the schema, so its bound is checked, as it is when a
  // pack is opened.
  const Status scratch = compress::CheckScratch(*schema);
  if (!scratch.has_value()) {
    return DamagedImage(offset + reader.offset(), scratch.error().message());
  }
  tables_.schema = std::move(*schema);
  if (tables_.schema.fields.size() != tables_.header.field_count) {
    return DamagedImage(offset, "the schema's number of fields differs from the header's");
  }
  // Rows of a batch are allocated by these sizes, so one that overflows must not pass.
  for (const compress::PackField& field : tables_.schema.fields) {
    tables_.specs.push_back(SpecOf(field));
    if (!tables_.specs.back().BytesPerSample().has_value()) {
      return DamagedImage(offset, "a field's samples have an impossible size");
    }
  }
  return {};
}

// The objects follow one another without gaps: in samples, and in the section of names. So the sums
// also prove that no sample and no name belongs to two objects.
Status PackImageChecker::CheckObjects() {
  std::uint64_t samples = 0;
  std::uint64_t name_offset = 0;
  for (std::uint32_t i = 0; i < tables_.header.object_count; ++i) {
    const PackObjectRow row = tables_.Object(i);
    // Each comparison subtracts sums that are already known to fit, so none can wrap.
    if (row.sample_base != samples || row.samples == 0 ||
        row.samples > tables_.header.sample_count - samples ||
        row.bytes > limits::kObjectBytesMax || row.name_offset != name_offset ||
        row.name_bytes == 0 || row.name_bytes > limits::kPathBytesMax ||
        row.name_bytes > tables_.names.size() - name_offset) {
      return BadRow<PackObjectRow>(PackSection::kObjects, i,
                                   "object " + std::to_string(i) +
                                       " does not follow the object before it");
    }
    samples += row.samples;
    name_offset += row.name_bytes;
  }
  if (samples != tables_.header.sample_count || name_offset != tables_.names.size()) {
    return DamagedImage(OffsetOf(PackSection::kObjects),
                        "the objects' samples do not add up to the header's count");
  }
  return {};
}

// Extents are sorted by object and offset, do not overlap, and divide the pieces among them.
Status PackImageChecker::CheckExtents() {
  std::uint64_t pieces = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t end = 0;  // of the extent before, in its object
  // Extents of one object are consecutive, so one number remembers where the last of them ended.
  std::uint32_t object = 0;
  for (std::uint32_t i = 0; i < tables_.header.extent_count; ++i) {
    const PackExtentRow row = tables_.Extent(i);
    FOREBAY_TRY(CheckExtent(i, row));
    if (row.object != object) end = 0;  // offsets start again in the next object
    // An object may be left out here. CheckChunks refuses it then: its samples have no chunks.
    if (row.object < object || row.object_offset < end) {
      return BadExtent(i, "overlaps or precedes the extent before it");
    }
    if (row.first_piece != pieces || row.piece_count > tables_.header.chunk_count - pieces) {
      return BadExtent(i, "has pieces out of place");
    }
    object = row.object;
    end = row.object_offset + row.bytes;
    pieces += row.piece_count;
    total_bytes += row.bytes;
  }
  if (pieces != tables_.header.chunk_count || total_bytes != tables_.header.total_bytes) {
    return DamagedImage(32, "the extents' chunks or bytes do not add up to the header's counts");
  }
  return {};
}

// The checks of one extent that need no other extent.
Status PackImageChecker::CheckExtent(std::uint32_t extent, const PackExtentRow& row) const {
  if (row.object >= tables_.header.object_count) return BadExtent(extent, "has no object");
  // The object's size is the one that was recorded when the pack was read, so the stager never asks
  // for bytes past its end.
  const std::uint64_t bytes = tables_.Object(row.object).bytes;
  if (row.bytes == 0 || row.bytes > limits::kExtentBytesMax || row.object_offset > bytes ||
      row.bytes > bytes - row.object_offset) {
    return BadExtent(extent, "runs past the end of its object");
  }
  if (row.piece_count == 0 || row.piece_count > limits::kSamplesPerExtentMax ||
      row.sample_count == 0 || row.sample_count > limits::kSamplesPerExtentMax) {
    return BadExtent(extent, "has an impossible number of chunks or samples");
  }
  return {};
}

// The chunk table is sorted by field, object, sample, tile and part. ChunkCoverage, which also
// checks the index of a pack, proves that the chunks of a field in an object cover each sample
// exactly once.
Status PackImageChecker::CheckChunks() {
  // The loop over rows ends at the first one of another field or object. So a row out of place is
  // never passed twice, and the check takes time in proportion to the rows.
  std::uint64_t next = 0;
  const std::uint64_t count = tables_.header.chunk_count;
  for (std::uint32_t field = 0; field < tables_.header.field_count; ++field) {
    tables_.field_begins.push_back(next);
    for (std::uint32_t object = 0; object < tables_.header.object_count; ++object) {
      const PackObjectRow file = tables_.Object(object);
      // Coverage is checked per file, with sample numbers of the file, as in the index of a pack.
      compress::ChunkCoverage coverage(tables_.schema.fields[field], file.samples);
      for (; next < count; ++next) {
        const PackChunkRow row = tables_.Chunk(next);
        if (row.field != field || row.object != object) break;
        const bool follows = coverage.Next({.field = field,
                                            .tile = row.tile,
                                            .first_sample = row.first_sample - file.sample_base,
                                            .sample_count = row.sample_count,
                                            .head_bytes = row.head_bytes,
                                            .offset = row.offset,
                                            .payload_bytes = row.payload_bytes,
                                            .part_offset = row.part_offset,
                                            .sample_bytes = row.sample_bytes,
                                            .head_checksum = row.head_checksum});
        if (!follows) return BadChunk(next, "does not follow the one before it");
        FOREBAY_TRY(CheckPlace(next, row));
      }
      // If rows are missing at the end, `next` is the number of rows, and the error names the place
      // where the next row should be.
      if (!coverage.Complete()) {
        return BadChunk(next, "comes too early: samples before it have no chunk");
      }
    }
  }
  tables_.field_begins.push_back(next);
  if (next != count) return BadChunk(next, "belongs to no field or no object");
  return {};
}

// Checks the place of one chunk. There are as many pieces as chunks, and each chunk is found in the
// piece that it names, so after all calls each piece is one chunk and each chunk is one piece.
Status PackImageChecker::CheckPlace(std::uint64_t chunk, const PackChunkRow& row) const {
  // The row's numbers are bounded in the order in which they are used: the extent first, then the
  // piece within it.
  if (row.extent >= tables_.header.extent_count) return BadChunk(chunk, "has no extent");
  const PackExtentRow extent = tables_.Extent(row.extent);
  const std::uint64_t bytes = std::uint64_t{row.head_bytes} + row.payload_bytes;
  if (extent.object != row.object || row.offset < extent.object_offset ||
      row.offset - extent.object_offset > extent.bytes ||
      bytes > extent.bytes - (row.offset - extent.object_offset)) {
    return BadChunk(chunk, "lies outside its extent");
  }
  if (row.piece >= extent.piece_count ||
      tables_.Piece(extent.first_piece + row.piece) != chunk) {
    return BadChunk(chunk, "is not the piece that it names");
  }
  // A stream asks the extent's row which samples it serves, so the row must not name too few.
  const std::uint64_t samples_end = extent.first_sample + extent.sample_count;
  if (row.first_sample < extent.first_sample ||
      row.first_sample + row.sample_count > samples_end) {
    return BadChunk(chunk, "holds samples that its extent does not name");
  }
  return {};
}

Status PackImageChecker::CheckPieces() const {
  for (std::uint32_t i = 0; i < tables_.header.extent_count; ++i) {
    FOREBAY_TRY(CheckExtentPieces(i, tables_.Extent(i)));
  }
  return {};
}

// The pieces of an extent do not overlap, and its bytes and samples are exactly those of its
// pieces. The stager relies on this: it takes one checksum per piece and reserves memory by the
// extent's size.
Status PackImageChecker::CheckExtentPieces(std::uint32_t extent, const PackExtentRow& row) const {
  // A gap between two pieces is allowed: keys and other records may lie there. They are staged, but
  // no checksum of a piece covers them.
  std::uint64_t end = row.object_offset;
  std::uint64_t first_sample = ~std::uint64_t{0};
  std::uint64_t samples_end = 0;
  for (std::uint32_t i = 0; i < row.piece_count; ++i) {
    // CheckPlace has found every chunk in its own piece, so this number is in bounds.
    const PackChunkRow chunk = tables_.Chunk(tables_.Piece(row.first_piece + i));
    if (chunk.offset < end || (i == 0 && chunk.offset != end)) {
      return BadExtent(extent, "has pieces that overlap, or do not begin at its first byte");
    }
    end = chunk.offset + chunk.head_bytes + chunk.payload_bytes;
    first_sample = std::min(first_sample, chunk.first_sample);
    samples_end = std::max(samples_end, chunk.first_sample + chunk.sample_count);
  }
  if (end != row.object_offset + row.bytes) {
    return BadExtent(extent, "does not end where its last piece ends");
  }
  if (first_sample != row.first_sample || samples_end != row.first_sample + row.sample_count) {
    return BadExtent(extent, "names other samples than its chunks hold");
  }
  return {};
}

// Walks over all keys, so that PackCatalog::SampleKey can follow their lengths.
Status PackImageChecker::CheckKeys() {
  tables_.keys.count = tables_.schema.keyed ? tables_.header.sample_count : 0;
  tables_.keys.per_entry = kKeysPerIndexEntry;
  return CheckStrings(tables_.keys, {.what = "key",
                                     .index_offset = OffsetOf(PackSection::kKeyIndex),
                                     .strings_offset = OffsetOf(PackSection::kKeys),
                                     .bytes_max = limits::kPackKeyBytesMax});
}

}  // namespace

Result<PackTables> CheckPackImage(std::span<const std::byte> image) {
  return PackImageChecker(image).Run();
}

}  // namespace forebay::catalog
