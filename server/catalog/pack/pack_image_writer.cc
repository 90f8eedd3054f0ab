// The chunk table is sorted by field, but files arrive one after another, each with chunks of all
// fields. So chunks are collected in one spool per field, and Finish writes the spools one after
// another. Pieces refer to chunks whose final number is not known before then: they are kept as
// field and row.
#include "server/catalog/pack/pack_image_writer.h"

#include <algorithm>
#include <array>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::catalog {
namespace {

Error LimitError(std::string_view what, std::uint64_t limit, std::string_view limit_name) {
  return Error(ErrorCode::kResourceExhausted, "more than " + std::to_string(limit) + " " +
                                                  std::string(what) + " (" +
                                                  std::string(limit_name) + ")");
}

// A chunk, named by its row among those of its field. Becomes a number in PutPieces; until then a
// piece takes 8 bytes.
struct FieldRow {
  std::uint32_t field = 0;
  std::uint32_t row = 0;
};

// The part of a schema that all files share: fields, keys, predictors and class names. Provenance
// stays out, except class names, which are kept there.
compress::PackSchema SharedSchema(const compress::PackSchema& schema) {
  compress::PackSchema shared;
  shared.fields = schema.fields;
  shared.keyed = schema.keyed;
  shared.predictors = schema.predictors;
  for (const compress::PackField& field : schema.fields) {
    const std::vector<std::string_view> names = compress::ClassNames(schema, field.name);
    for (std::size_t i = 0; i < names.size(); ++i) {
      shared.provenance.emplace_back(compress::ClassKey(field.name, i), names[i]);
    }
  }
  return shared;
}

}  // namespace

// Offsets and sizes of sections are left out: they follow from the counts and the hashes.
std::uint64_t FingerprintOf(const PackHeaderRow& header) {
  // The names of the data set and its classes lie in the section `meta`, so its hash covers them.
  ByteWriter text;
  text.Le(header.magic);
  text.Le(header.version);
  text.Le(header.sample_count);
  text.Le(header.total_bytes);
  text.Le(header.chunk_count);
  text.Le(header.object_count);
  text.Le(header.extent_count);
  text.Le(header.field_count);
  for (const SectionRow& section : header.sections) text.Le(section.hash);
  return Checksum(text.bytes());
}

std::uint64_t HashOf(const PackHeaderRow& header) {
  return Checksum(RowBytes(header).first(kHeaderBytes - sizeof(header.hash)));
}

PackImageWriter::PackImageWriter(std::string name, const compress::PackSchema& schema,
                                 const BuildScratch& scratch)
    : name_(std::move(name)),
      schema_(SharedSchema(schema)),
      objects_(scratch),
      names_(scratch),
      extents_(scratch),
      pieces_(scratch),
      key_index_(scratch),
      keys_(scratch),
      image_(scratch) {
  // The tables of the fields are one table of the image, so together they get the memory of one.
  BuildScratch share = scratch;
  share.table_bytes /= std::max<std::size_t>(schema_.fields.size(), 1);
  for (std::size_t i = 0; i < schema_.fields.size(); ++i) chunks_.emplace_back(share);
  header_.field_count = static_cast<std::uint32_t>(schema_.fields.size());
}

Status PackImageWriter::AddPack(const PackObject& object, const PackCut& cut) {
  // The header's counts are the numbers that the new rows start from, so they grow at the end only.
  const std::uint32_t first_extent = header_.extent_count;
  FOREBAY_TRY(AddObject(object));
  FOREBAY_TRY(AddExtents(object, cut));
  FOREBAY_TRY(AddChunks(object, cut, first_extent));
  header_.sample_count += object.samples;
  ++header_.object_count;
  return {};
}

// Adds the file's row. Checks its limits first, so that the casts of the other functions cannot
// cut.
Status PackImageWriter::AddObject(const PackObject& object) {
  if (header_.object_count >= limits::kPackShardsMax) {
    return LimitError("packs", limits::kPackShardsMax, "kPackShardsMax");
  }
  if (object.path.empty() || object.path.size() > limits::kPathBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "path " + Quoted(object.path) + " must have 1 to " +
                     std::to_string(limits::kPathBytesMax) + " bytes (kPathBytesMax)");
  }
  if (object.bytes > limits::kObjectBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 Quoted(object.path) + " exceeds 2^48 bytes (kObjectBytesMax)");
  }
  // Subtraction, because the number of samples comes from the pack's footer and the sum could wrap.
  if (object.samples > limits::kSampleCountMax - header_.sample_count) {
    return LimitError("samples", limits::kSampleCountMax, "kSampleCountMax");
  }
  // Pieces hold a chunk's number in 32 bits.
  if (object.chunks.size() > 0xFFFF'FFFF - header_.chunk_count) {
    return LimitError("chunks", 0xFFFF'FFFF, "32 bits number them");
  }
  PackObjectRow row;
  row.bytes = object.bytes;
  row.mtime_ns = object.mtime_ns;
  row.identity = object.identity;
  row.sample_base = header_.sample_count;
  row.samples = object.samples;
  row.name_offset = names_.size();
  row.name_bytes = static_cast<std::uint32_t>(object.path.size());
  FOREBAY_TRY(objects_.Append(RowBytes(row)));
  return names_.Append(std::as_bytes(std::span(object.path.data(), object.path.size())));
}

// Pieces are numbered through the data set in the order of extents, one for each chunk.
Status PackImageWriter::AddExtents(const PackObject& object, const PackCut& cut) {
  // `header_.chunk_count` is still the number of chunks of the packs before this one.
  std::uint64_t first_piece = header_.chunk_count;
  for (const PackExtent& extent : cut.extents) {
    if (header_.extent_count >= limits::kExtentCountMax) {
      return LimitError("extents", limits::kExtentCountMax,
                        "kExtentCountMax: raise the data set's key 'extent'");
    }
    PackExtentRow row;
    row.object_offset = extent.offset;
    row.first_sample = header_.sample_count + extent.first_sample;
    row.first_piece = first_piece;
    row.object = header_.object_count;
    row.bytes = extent.bytes;
    row.sample_count = extent.sample_count;
    row.piece_count = extent.chunk_count;
    FOREBAY_TRY(extents_.Append(RowBytes(row)));
    first_piece += extent.chunk_count;
    ++header_.extent_count;
    header_.total_bytes += extent.bytes;
  }
  // The cut takes every chunk exactly once, so the numbers of pieces and chunks agree.
  FOREBAY_CHECK(first_piece - header_.chunk_count == object.chunks.size());
  return {};
}

Status PackImageWriter::AddChunks(const PackObject& object, const PackCut& cut,
                                  std::uint32_t first_extent) {
  // Inverts the cut: extent and piece of each chunk, by its number in the file's index.
  std::vector<std::uint32_t> extents(object.chunks.size());
  std::vector<std::uint32_t> pieces(object.chunks.size());
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < cut.extents.size(); ++i) {
    for (std::uint32_t piece = 0; piece < cut.extents[i].chunk_count; ++piece) {
      extents[cut.order[next]] = first_extent + i;
      pieces[cut.order[next++]] = piece;
    }
  }
  std::vector<std::uint32_t> rows(object.chunks.size());  // among those of the field
  for (std::size_t i = 0; i < object.chunks.size(); ++i) {
    const compress::ChunkEntry& entry = object.chunks[i];
    PackChunkRow row;
    row.first_sample = header_.sample_count + entry.first_sample;
    row.offset = entry.offset;
    row.head_checksum = entry.head_checksum;
    row.field = entry.field;
    row.tile = entry.tile;
    row.sample_count = entry.sample_count;
    row.head_bytes = entry.head_bytes;
    // The reader of the index has compared these three with kChunkBytesMax and kSampleBytesMax, so
    // the casts keep all bits.
    row.payload_bytes = static_cast<std::uint32_t>(entry.payload_bytes);
    row.part_offset = static_cast<std::uint32_t>(entry.part_offset);
    row.sample_bytes = static_cast<std::uint32_t>(entry.sample_bytes);
    row.object = header_.object_count;
    row.extent = extents[i];
    row.piece = pieces[i];
    // The index of a pack is sorted by field, sample, tile and part, so each table stays sorted.
    TableSpool& table = chunks_[entry.field];
    rows[i] = static_cast<std::uint32_t>(table.size() / sizeof(PackChunkRow));
    FOREBAY_TRY(table.Append(RowBytes(row)));
  }
  // Pieces follow the order of offsets, rows the order of the index.
  for (const std::uint32_t chunk : cut.order) {
    const FieldRow piece{.field = object.chunks[chunk].field, .row = rows[chunk]};
    FOREBAY_TRY(pieces_.Append(RowBytes(piece)));
  }
  header_.chunk_count += object.chunks.size();
  return {};
}

// Keys have their own count: they arrive after the samples of their file were counted.
Status PackImageWriter::AddKeys(std::span<const std::string> keys) {
  for (const std::string& key : keys) {
    if (key_count_++ % kKeysPerIndexEntry == 0) {
      const std::uint64_t offset = keys_.size();
      FOREBAY_TRY(key_index_.Append(RowBytes(offset)));
    }
    // PackFile::Keys has refused longer keys.
    FOREBAY_CHECK(key.size() <= limits::kPackKeyBytesMax);
    const auto length = static_cast<std::uint16_t>(key.size());
    FOREBAY_TRY(keys_.Append(RowBytes(length)));
    FOREBAY_TRY(keys_.Append(std::as_bytes(std::span(key.data(), key.size()))));
  }
  return {};
}

// Every byte of the image goes through here, so that the limit and the section's hash cover all.
Status PackImageWriter::Put(std::span<const std::byte> bytes) {
  if (bytes.size() > limits::kCatalogFileBytesMax - image_.size()) {
    return LimitError("bytes of catalog", limits::kCatalogFileBytesMax, "kCatalogFileBytesMax");
  }
  // Header and padding lie outside of sections, so no hash runs then.
  if (section_hash_.has_value()) section_hash_->Update(bytes);
  return image_.Append(bytes);
}

// Aligns the image and starts the section's hash, which does not cover the padding before it.
Status PackImageWriter::BeginSection(PackSection kind) {
  static constexpr std::array<std::byte, kSectionAlignmentBytes> kZeros = {};
  const auto padding = static_cast<std::size_t>(AlignSection(image_.size()) - image_.size());
  FOREBAY_TRY(Put(std::span(kZeros).first(padding)));
  header_.sections[static_cast<std::size_t>(kind)].offset = image_.size();
  section_hash_.emplace();
  return {};
}

Status PackImageWriter::EndSection(PackSection kind) {
  SectionRow& section = header_.sections[static_cast<std::size_t>(kind)];
  section.bytes = image_.size() - section.offset;
  section.hash = section_hash_->Finish();
  section_hash_.reset();
  return {};
}

Status PackImageWriter::PutSpool(PackSection kind, TableSpool& table) {
  FOREBAY_TRY(BeginSection(kind));
  FOREBAY_TRY(table.ForEachPiece([&](std::span<const std::byte> piece) { return Put(piece); }));
  // Frees the scratch file, so that image and tables together take little more than the image.
  table.Clear();
  return EndSection(kind);
}

// One table after another gives the order by field that the image needs.
Status PackImageWriter::PutChunks() {
  FOREBAY_TRY(BeginSection(PackSection::kChunks));
  for (TableSpool& table : chunks_) {
    FOREBAY_TRY(table.ForEachPiece([&](std::span<const std::byte> piece) { return Put(piece); }));
    table.Clear();
  }
  return EndSection(PackSection::kChunks);
}

// Writes the pieces, with each FieldRow turned into the chunk's number in the image.
Status PackImageWriter::PutPieces(std::span<const std::uint32_t> field_begins) {
  FOREBAY_TRY(BeginSection(PackSection::kPieces));
  // Read in a stream with one buffer: a data set may have 2^32 pieces, of 8 bytes each.
  SpoolReader reader(pieces_);
  for (std::uint64_t i = 0; i < header_.chunk_count; ++i) {
    FOREBAY_ASSIGN(const std::span<const std::byte> bytes, reader.Take(sizeof(FieldRow)));
    const auto piece = LoadAt<FieldRow>(bytes, 0);
    const std::uint32_t number = field_begins[piece.field] + piece.row;
    FOREBAY_TRY(Put(RowBytes(number)));
  }
  return EndSection(PackSection::kPieces);
}

// Lays out the image in the order of PackSection.
Result<ImageBytes> PackImageWriter::Finish() {
  // A table of keys that is one short would give every later sample its neighbour's key.
  FOREBAY_CHECK(key_count_ == (schema_.keyed ? header_.sample_count : 0));
  // Zeros take the place of the header until all offsets and hashes are known.
  FOREBAY_TRY(Put(RowBytes(PackHeaderRow{})));
  FOREBAY_TRY(BeginSection(PackSection::kMeta));
  ByteWriter name;
  name.String(name_);
  FOREBAY_TRY(Put(name.bytes()));
  FOREBAY_TRY(Put(compress::WriteSchema(schema_)));
  FOREBAY_TRY(EndSection(PackSection::kMeta));
  FOREBAY_TRY(PutSpool(PackSection::kObjects, objects_));
  FOREBAY_TRY(PutSpool(PackSection::kNames, names_));
  FOREBAY_TRY(PutSpool(PackSection::kExtents, extents_));
  // Must come before PutChunks, which clears the tables. AddObject has bounded the rows to 32 bits.
  std::vector<std::uint32_t> field_begins;
  std::uint64_t rows = 0;
  for (const TableSpool& table : chunks_) {
    field_begins.push_back(static_cast<std::uint32_t>(rows));
    rows += table.size() / sizeof(PackChunkRow);
  }
  FOREBAY_TRY(PutChunks());
  FOREBAY_TRY(PutPieces(field_begins));
  FOREBAY_TRY(PutSpool(PackSection::kKeyIndex, key_index_));
  FOREBAY_TRY(PutSpool(PackSection::kKeys, keys_));
  header_.image_bytes = image_.size();
  header_.fingerprint = FingerprintOf(header_);
  header_.hash = HashOf(header_);
  FOREBAY_TRY(image_.ReplaceStart(RowBytes(header_)));
  return image_.Release();
}

}  // namespace forebay::catalog
