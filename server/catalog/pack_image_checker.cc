#include "server/catalog/pack_image_checker.h"

#include <algorithm>
#include <array>
#include <string>

#include "compress/format/chunk_coverage.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::catalog {
namespace {

constexpr std::array<std::string_view, kPackSectionCount> kSectionNames = {
    "meta", "objects", "names", "extents", "chunks", "pieces", "key index", "keys"};

Error Damaged(std::uint64_t offset, std::string_view reason) {
  return Error(ErrorCode::kDataLoss,
               "catalog at offset " + std::to_string(offset) + ": " + std::string(reason));
}

// Walks the tables in the order in which each check may rely on the ones before it.
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
  Status CheckKeys() const;

  std::uint64_t OffsetOf(PackSection kind) const { return tables_.header.section(kind).offset; }
  template <typename Row>
  Error BadRow(PackSection kind, std::uint64_t number, std::string_view reason) const {
    return Damaged(OffsetOf(kind) + number * sizeof(Row), reason);
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

Status PackImageChecker::CheckHeader() {
  if (image_.size() < kHeaderBytes) {
    return Damaged(image_.size(), "truncated: the header has " + std::to_string(kHeaderBytes) +
                                      " bytes");
  }
  tables_.header = LoadAt<PackHeaderRow>(image_, 0);
  const PackHeaderRow& header = tables_.header;
  if (header.magic != kPackCatalogMagic) return Damaged(0, "not a catalog of packs");
  // The hash comes first, so that a flipped bit in the version reads as damage.
  if (HashOf(header) != header.hash) return Damaged(0, "header does not match its checksum");
  if (header.version != kPackCatalogVersion) {
    return Error(ErrorCode::kFailedPrecondition,
                 "catalog of packs has format version " + std::to_string(header.version) +
                     ", this build reads " + std::to_string(kPackCatalogVersion) +
                     ": build the catalog again");
  }
  if (header.image_bytes != image_.size()) {
    return Damaged(image_.size(), "image has " + std::to_string(image_.size()) +
                                      " bytes, its header says " +
                                      std::to_string(header.image_bytes));
  }
  return CheckCounts();
}

Status PackImageChecker::CheckCounts() const {
  const PackHeaderRow& header = tables_.header;
  if (header.sample_count == 0 || header.sample_count > limits::kSampleCountMax ||
      header.object_count == 0 || header.object_count > limits::kPackShardsMax ||
      header.extent_count == 0 || header.extent_count > limits::kExtentCountMax ||
      header.field_count == 0 || header.field_count > limits::kFieldCountMax ||
      header.chunk_count == 0 || header.chunk_count > 0xFFFF'FFFF) {
    return Damaged(12, "a count is zero or exceeds its published limit");
  }
  return {};
}

Result<std::span<const std::byte>> PackImageChecker::Section(PackSection kind) const {
  const SectionRow& row = tables_.header.section(kind);
  const std::string name(kSectionNames[static_cast<std::size_t>(kind)]);
  if (row.offset < kHeaderBytes || row.offset % kSectionAlignmentBytes != 0 ||
      row.offset > image_.size() || row.bytes > image_.size() - row.offset) {
    return Damaged(row.offset, "section '" + name + "' lies outside the image");
  }
  const std::span<const std::byte> bytes = image_.subspan(row.offset, row.bytes);
  if (Checksum(bytes) != row.hash) {
    return Damaged(row.offset, "section '" + name + "' does not match its checksum");
  }
  return bytes;
}

Status PackImageChecker::CheckSections() {
  const PackHeaderRow& header = tables_.header;
  FOREBAY_ASSIGN(tables_.objects, Section(PackSection::kObjects));
  FOREBAY_ASSIGN(tables_.names, Section(PackSection::kNames));
  FOREBAY_ASSIGN(tables_.extents, Section(PackSection::kExtents));
  FOREBAY_ASSIGN(tables_.chunks, Section(PackSection::kChunks));
  FOREBAY_ASSIGN(tables_.pieces, Section(PackSection::kPieces));
  FOREBAY_ASSIGN(tables_.key_index, Section(PackSection::kKeyIndex));
  FOREBAY_ASSIGN(tables_.keys, Section(PackSection::kKeys));
  if (FingerprintOf(header) != header.fingerprint) {
    return Damaged(40, "fingerprint does not match the tables");
  }
  if (tables_.objects.size() != header.object_count * sizeof(PackObjectRow) ||
      tables_.extents.size() != header.extent_count * sizeof(PackExtentRow) ||
      tables_.chunks.size() != header.chunk_count * sizeof(PackChunkRow) ||
      tables_.pieces.size() != header.chunk_count * sizeof(std::uint32_t)) {
    return Damaged(48, "a table's size does not match the header's counts");
  }
  return {};
}

Status PackImageChecker::ReadMeta() {
  FOREBAY_ASSIGN(const std::span<const std::byte> meta, Section(PackSection::kMeta));
  const std::uint64_t offset = OffsetOf(PackSection::kMeta);
  ByteReader reader(meta);
  tables_.name = std::string(reader.ReadString(limits::kNameBytesMax));
  const std::span<const std::byte> start = meta.subspan(reader.offset());
  if (!reader.ok() || tables_.name.empty() || start.size() < compress::kPackHeaderBytes) {
    return Damaged(offset + reader.offset(), "malformed name or schema");
  }
  const auto start_bytes = compress::PackStartBytes(start.first(compress::kPackHeaderBytes));
  if (!start_bytes.has_value() || *start_bytes != start.size()) {
    return Damaged(offset + reader.offset(), "a schema of the wrong size");
  }
  auto schema = compress::ReadPackStart(start);
  if (!schema.has_value()) {
    return Damaged(offset + reader.offset(), schema.error().message());
  }
  tables_.schema = std::move(*schema);
  if (tables_.schema.fields.size() != tables_.header.field_count) {
    return Damaged(offset, "a schema of another number of fields");
  }
  for (const compress::PackField& field : tables_.schema.fields) {
    tables_.specs.push_back(SpecOf(field));
    if (!tables_.specs.back().BytesPerSample().has_value()) {
      return Damaged(offset, "samples of an impossible size");
    }
  }
  return {};
}

Status PackImageChecker::CheckObjects() {
  std::uint64_t samples = 0;
  std::uint64_t name_offset = 0;
  for (std::uint32_t i = 0; i < tables_.header.object_count; ++i) {
    const PackObjectRow row = tables_.Object(i);
    if (row.sample_base != samples || row.samples == 0 ||
        row.samples > tables_.header.sample_count - samples ||
        row.bytes > limits::kObjectBytesMax || row.name_offset != name_offset ||
        row.name_bytes == 0 || row.name_bytes > limits::kPathBytesMax ||
        row.name_bytes > tables_.names.size() - name_offset) {
      return BadRow<PackObjectRow>(PackSection::kObjects, i,
                                   "object " + std::to_string(i) + " does not follow");
    }
    samples += row.samples;
    name_offset += row.name_bytes;
  }
  if (samples != tables_.header.sample_count || name_offset != tables_.names.size()) {
    return Damaged(OffsetOf(PackSection::kObjects), "objects of another number of samples");
  }
  return {};
}

Status PackImageChecker::CheckExtents() {
  std::uint64_t pieces = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t end = 0;  // of the extent before, in its object
  std::uint32_t object = 0;
  for (std::uint32_t i = 0; i < tables_.header.extent_count; ++i) {
    const PackExtentRow row = tables_.Extent(i);
    FOREBAY_TRY(CheckExtent(i, row));
    if (row.object != object) end = 0;
    // Chunks decide that every object has an extent.
    if (row.object < object || row.object_offset < end) {
      return BadExtent(i, "lies before the one before it");
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
    return Damaged(32, "extents of another number of chunks or bytes");
  }
  return {};
}

Status PackImageChecker::CheckExtent(std::uint32_t extent, const PackExtentRow& row) const {
  if (row.object >= tables_.header.object_count) return BadExtent(extent, "has no object");
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

Status PackImageChecker::CheckChunks() {
  std::uint64_t next = 0;
  const std::uint64_t count = tables_.header.chunk_count;
  for (std::uint32_t field = 0; field < tables_.header.field_count; ++field) {
    tables_.field_begins.push_back(next);
    for (std::uint32_t object = 0; object < tables_.header.object_count; ++object) {
      const PackObjectRow file = tables_.Object(object);
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
      if (!coverage.Complete()) {
        return BadChunk(next, "comes too early: samples before it have none");
      }
    }
  }
  tables_.field_begins.push_back(next);
  if (next != count) return BadChunk(next, "is of no field or object");
  return {};
}

// After it, and as there are as many pieces as chunks, each chunk is one piece of one extent.
Status PackImageChecker::CheckPlace(std::uint64_t chunk, const PackChunkRow& row) const {
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
    return BadChunk(chunk, "is not the piece that it says");
  }
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

Status PackImageChecker::CheckExtentPieces(std::uint32_t extent, const PackExtentRow& row) const {
  std::uint64_t end = row.object_offset;
  std::uint64_t first_sample = ~std::uint64_t{0};
  std::uint64_t samples_end = 0;
  for (std::uint32_t i = 0; i < row.piece_count; ++i) {
    // CheckPlace has found every chunk in its own piece, so that this is a chunk's number.
    const PackChunkRow chunk = tables_.Chunk(tables_.Piece(row.first_piece + i));
    if (chunk.offset < end || (i == 0 && chunk.offset != end)) {
      return BadExtent(extent, "has pieces that overlap or begin late");
    }
    end = chunk.offset + chunk.head_bytes + chunk.payload_bytes;
    first_sample = std::min(first_sample, chunk.first_sample);
    samples_end = std::max(samples_end, chunk.first_sample + chunk.sample_count);
  }
  if (end != row.object_offset + row.bytes) {
    return BadExtent(extent, "does not end with its last piece");
  }
  if (first_sample != row.first_sample || samples_end != row.first_sample + row.sample_count) {
    return BadExtent(extent, "names other samples than its chunks hold");
  }
  return {};
}

Status PackImageChecker::CheckKeys() const {
  const std::uint64_t samples = tables_.schema.keyed ? tables_.header.sample_count : 0;
  const std::uint64_t size = tables_.keys.size();
  const std::uint64_t entries = (samples + kKeysPerIndexEntry - 1) / kKeysPerIndexEntry;
  if (tables_.key_index.size() != entries * sizeof(std::uint64_t)) {
    return Damaged(OffsetOf(PackSection::kKeyIndex), "a key index of the wrong size");
  }
  std::uint64_t offset = 0;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::uint64_t entry = i / kKeysPerIndexEntry * sizeof(std::uint64_t);
    if (i % kKeysPerIndexEntry == 0 &&
        LoadAt<std::uint64_t>(tables_.key_index, entry) != offset) {
      return Damaged(OffsetOf(PackSection::kKeyIndex) + entry, "wrong key index");
    }
    if (size - offset < sizeof(std::uint16_t)) {
      return Damaged(OffsetOf(PackSection::kKeys) + offset, "keys end too early");
    }
    const auto length = LoadAt<std::uint16_t>(tables_.keys, offset);
    offset += sizeof(std::uint16_t);
    if (length > limits::kPackKeyBytesMax || length > size - offset) {
      return Damaged(OffsetOf(PackSection::kKeys) + offset, "key of an impossible length");
    }
    offset += length;
  }
  if (offset != size) {
    return Damaged(OffsetOf(PackSection::kKeys) + offset, "bytes after the last key");
  }
  return {};
}

}  // namespace

Result<PackTables> CheckPackImage(std::span<const std::byte> image) {
  return PackImageChecker(image).Run();
}

}  // namespace forebay::catalog
