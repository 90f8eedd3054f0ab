// Writes a catalog image: header, pages, then the tables. Pages come first, because they are the
// only part that is ready while extents arrive; tables collect in memory or in a spool until
// Finish. The header is written twice: as zeros, to take its place, and at the end with all offsets
// and hashes.
#include "server/catalog/storage/catalog_writer.h"

#include <algorithm>
#include <array>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::catalog {
namespace {

void AppendText(std::vector<std::byte>& bytes, std::string_view text) {
  const auto raw = std::as_bytes(std::span(text.data(), text.size()));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

Error LimitError(std::string_view what, std::uint64_t count, std::uint64_t limit,
                 std::string_view limit_name) {
  return Error(ErrorCode::kResourceExhausted,
               std::to_string(count) + " " + std::string(what) + " exceed the limit of " +
                   std::to_string(limit) + " (" + std::string(limit_name) + ")");
}

// `what` says whose name it is: "field", "class" or "data set".
Status CheckName(std::string_view what, std::string_view name) {
  if (name.empty() || name.size() > limits::kNameBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 std::string(what) + " name " + Quoted(name) + " must have 1 to " +
                     std::to_string(limits::kNameBytesMax) + " bytes (kNameBytesMax)");
  }
  return {};
}

// Checks names, shapes and numbers of classes against the published limits, and that names are
// unique.
Status CheckFields(std::span<const FieldPlan> fields) {
  if (fields.size() > limits::kFieldCountMax) {
    return LimitError("fields", fields.size(), limits::kFieldCountMax, "kFieldCountMax");
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const FieldPlan& field = fields[i];
    FOREBAY_TRY(CheckName("field", field.spec.name));
    if (field.spec.shape.size() > limits::kDimensionCountMax) {
      return LimitError("dimensions", field.spec.shape.size(), limits::kDimensionCountMax,
                        "kDimensionCountMax");
    }
    if (field.constant_names.size() > limits::kClassCountMax) {
      return LimitError("classes", field.constant_names.size(), limits::kClassCountMax,
                        "kClassCountMax");
    }
    for (const std::string& name : field.constant_names) FOREBAY_TRY(CheckName("class", name));
    // Quadratic, but there are at most kFieldCountMax (64) fields.
    for (std::size_t j = 0; j < i; ++j) {
      if (fields[j].spec.name == field.spec.name) {
        return Error(ErrorCode::kInvalidArgument,
                     "field " + Quoted(field.spec.name) + " is supplied twice");
      }
    }
  }
  return {};
}

// The section `meta`; ImageChecker::ReadMeta is its inverse.
std::vector<std::byte> EncodeMeta(std::string_view name, std::span<const FieldPlan> fields) {
  ByteWriter meta;
  meta.String(name);
  for (const FieldPlan& field : fields) {
    meta.String(field.spec.name);
    // The numbers of dtypes and sources are those of their enumerators, so these may never be
    // renumbered.
    meta.Le(static_cast<std::uint8_t>(field.spec.dtype));
    meta.Le(static_cast<std::uint8_t>(field.spec.source));
    meta.Le(static_cast<std::uint8_t>(field.spec.big_endian ? 1 : 0));
    meta.Varint(field.spec.shape.size());
    for (const std::uint64_t dimension : field.spec.shape) meta.Varint(dimension);
    meta.Varint(field.part);
    meta.Varint(field.constant_names.size());
    for (const std::string& constant : field.constant_names) meta.String(constant);
  }
  return meta.Release();
}

}  // namespace

CatalogWriter::CatalogWriter(ImageSink& sink, std::string name, Format format,
                             const BuildScratch& scratch)
    // Only these two tables go to spools: they grow with the number of objects, which may be 10^8
    // files. Extents are bounded by kExtentCountMax.
    : sink_(sink), name_(std::move(name)), objects_(scratch), names_(scratch) {
  header_.format = static_cast<std::uint32_t>(format);
}

// Every byte of the image goes through here, so that the limit holds for all of them.
Status CatalogWriter::PutUnaligned(std::span<const std::byte> bytes) {
  if (bytes.size() > limits::kCatalogFileBytesMax - written_bytes_) {
    return Error(ErrorCode::kResourceExhausted,
                 "catalog exceeds " + std::to_string(limits::kCatalogFileBytesMax) +
                     " bytes (kCatalogFileBytesMax)");
  }
  FOREBAY_TRY(sink_.Append(bytes));
  written_bytes_ += bytes.size();
  return {};
}

// Appends bytes and pads the image to the next multiple of 8.
Status CatalogWriter::Put(std::span<const std::byte> bytes) {
  FOREBAY_TRY(PutUnaligned(bytes));
  static constexpr std::array<std::byte, kSectionAlignmentBytes> kZeros = {};
  const auto padding = static_cast<std::size_t>(AlignSection(written_bytes_) - written_bytes_);
  return PutUnaligned(std::span(kZeros).first(padding));
}

// Reserves the place of the header before the first byte of anything else.
Status CatalogWriter::Start() {
  if (written_bytes_ > 0) return {};
  return Put(RowBytes(HeaderRow{}));
}

Result<ObjectId> CatalogWriter::AddObject(std::string_view path, std::uint64_t bytes,
                                          std::int64_t mtime_ns) {
  // Each limit is checked before a row is made, because the casts below would cut a larger value
  // without an error.
  if (header_.object_count >= limits::kObjectCountMax) {
    return LimitError("objects", std::uint64_t{header_.object_count} + 1,
                      limits::kObjectCountMax, "kObjectCountMax");
  }
  if (path.empty() || path.size() > limits::kPathBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "path " + Quoted(path) + " must have 1 to " +
                     std::to_string(limits::kPathBytesMax) + " bytes (kPathBytesMax)");
  }
  if (bytes > limits::kObjectBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 Quoted(path) + " exceeds 2^48 bytes (kObjectBytesMax)");
  }
  // The size takes 48 bits and not 64: with 10^8 files each byte of a row costs 100 MB.
  ByteWriter row;
  row.Le(static_cast<std::uint32_t>(bytes & 0xFFFF'FFFF));
  row.Le(static_cast<std::uint16_t>(bytes >> 32));
  row.Le(static_cast<std::uint64_t>(mtime_ns));
  FOREBAY_TRY(objects_.Append(row.bytes()));
  // Every 16th name has an index entry: half a byte per object, and at most 15 names to skip.
  if (header_.object_count % kNamesPerIndexEntry == 0) name_index_.push_back(names_.size());
  const auto length = static_cast<std::uint16_t>(path.size());
  FOREBAY_TRY(names_.Append(std::as_bytes(std::span(&length, 1))));
  FOREBAY_TRY(names_.Append(std::as_bytes(std::span(path.data(), path.size()))));
  return ObjectId(header_.object_count++);
}

Result<std::uint32_t> CatalogWriter::BeginPart(PartKind kind, std::uint32_t entry_bytes) {
  PartRow part;
  part.kind = static_cast<std::uint32_t>(kind);
  part.first_extent = header_.extent_count;
  part.entry_bytes = entry_bytes;
  parts_.push_back(part);
  return static_cast<std::uint32_t>(parts_.size() - 1);
}

Result<std::uint32_t> CatalogWriter::AddFixedPart(std::uint64_t sample_count,
                                                  std::uint64_t data_offset,
                                                  std::uint64_t record_bytes,
                                                  std::uint64_t extent_bytes) {
  FOREBAY_ASSIGN(const std::uint32_t number, BeginPart(PartKind::kFixed, 0));
  // Works on a copy, because AddExtent counts the extents in parts_[number] as they are added.
  PartRow cut = parts_[number];
  // A fixed part reads one object, so AddObject for it comes directly before this call.
  cut.first_object = header_.object_count - 1;
  cut.object_count = 1;
  cut.data_offset = data_offset;
  cut.record_bytes = record_bytes;
  FOREBAY_TRY(CutFixedPart(sample_count, extent_bytes, cut));
  for (std::uint32_t i = 0; i < cut.extent_count; ++i) {
    FOREBAY_TRY(AddExtent(FixedExtent(cut, number, sample_count, i), {}, {}));
  }
  parts_[number] = cut;
  return number;
}

Status CatalogWriter::AddExtent(ExtentRow row, std::span<const std::byte> entries,
                                std::span<const std::byte> keys) {
  // The pages go to the sink at once; only the row stays in memory, 64 bytes for up to 64 MiB of
  // data.
  FOREBAY_CHECK(!parts_.empty());
  if (header_.extent_count >= limits::kExtentCountMax) {
    return LimitError("extents", std::uint64_t{header_.extent_count} + 1,
                      limits::kExtentCountMax,
                      "kExtentCountMax: raise the data set's key 'extent'");
  }
  PartRow& part = parts_.back();
  // Entries are found by multiplication, so a page of another size would shift all samples after
  // it. A mistake of a builder must stop here, because the hash would confirm it.
  FOREBAY_CHECK(entries.size() == std::uint64_t{row.starting_count} * part.entry_bytes);
  FOREBAY_TRY(Start());
  row.part = static_cast<std::uint32_t>(parts_.size() - 1);
  // A fixed part has no pages. Its rows must equal what FixedExtent computes, which has offset 0.
  row.page_offset = part.entry_bytes == 0 ? 0 : written_bytes_ - kHeaderBytes;
  row.entries_hash = entries.empty() ? 0 : Checksum(entries);
  row.keys_hash = keys.empty() ? 0 : Checksum(keys);
  if (!entries.empty()) {
    // The key page follows its sample page without padding, so one offset locates both.
    FOREBAY_TRY(PutUnaligned(entries));
    FOREBAY_TRY(Put(keys));
  }
  extents_.push_back(row);
  ++part.extent_count;
  ++header_.extent_count;
  // Counts bytes that are staged. Headers of records and gaps between extents belong to no extent.
  header_.total_bytes += row.bytes;
  return {};
}

Status CatalogWriter::PutSection(SectionKind kind, std::span<const std::byte> bytes) {
  SectionRow& section = header_.sections[static_cast<std::size_t>(kind)];
  section.offset = written_bytes_;
  section.bytes = bytes.size();
  section.hash = Checksum(bytes);
  return Put(bytes);
}

// Writes a section from a table that may be larger than memory. The table is empty afterwards, so
// its scratch file is freed before the next section is written.
Status CatalogWriter::PutSpool(SectionKind kind, TableSpool& table) {
  SectionRow& section = header_.sections[static_cast<std::size_t>(kind)];
  section.offset = written_bytes_;
  section.bytes = table.size();
  ChecksumStream hash;
  FOREBAY_TRY(table.ForEachPiece([&](std::span<const std::byte> piece) {
    hash.Update(piece);
    return PutUnaligned(piece);
  }));
  section.hash = hash.Finish();
  table.Clear();
  return Put({});
}

// All that was written so far is the section of pages. The tables follow, and the header last: a
// catalog whose build was interrupted has a header of zeros, which no reader accepts.
Status CatalogWriter::Finish(std::uint64_t sample_count, std::span<const FieldPlan> fields) {
  FOREBAY_TRY(CheckName("data set", name_));
  FOREBAY_TRY(CheckFields(fields));
  if (sample_count == 0) {
    return Error(ErrorCode::kInvalidArgument, "data set " + Quoted(name_) + " has no samples");
  }
  // In a scan the number of samples is known last, so this is the first place where it can be
  // checked for all formats.
  if (sample_count > limits::kSampleCountMax) {
    return LimitError("samples", sample_count, limits::kSampleCountMax, "kSampleCountMax");
  }
  FOREBAY_TRY(Start());
  SectionRow& pages = header_.sections[static_cast<std::size_t>(SectionKind::kPages)];
  pages.offset = kHeaderBytes;
  pages.bytes = written_bytes_ - kHeaderBytes;
  // A part with pages is the only part of its catalog, so all objects are its objects.
  for (PartRow& part : parts_) {
    if (part.kind == static_cast<std::uint32_t>(PartKind::kFixed)) continue;
    part.object_count = header_.object_count;
  }
  header_.part_count = static_cast<std::uint32_t>(parts_.size());
  header_.field_count = static_cast<std::uint32_t>(fields.size());
  header_.sample_count = sample_count;
  // No reader relies on the order of the sections, because the header has their offsets. The order
  // is fixed so that equal data sets have equal images, byte by byte.
  FOREBAY_TRY(PutSection(SectionKind::kMeta, EncodeMeta(name_, fields)));
  FOREBAY_TRY(PutSection(SectionKind::kParts, std::as_bytes(std::span(parts_))));
  FOREBAY_TRY(PutSpool(SectionKind::kObjects, objects_));
  FOREBAY_TRY(PutSection(SectionKind::kNameIndex, std::as_bytes(std::span(name_index_))));
  FOREBAY_TRY(PutSpool(SectionKind::kNames, names_));
  FOREBAY_TRY(PutSection(SectionKind::kExtents, std::as_bytes(std::span(extents_))));
  // The fingerprint depends on the sections' hashes, and the header's hash on the fingerprint.
  header_.image_bytes = written_bytes_;
  header_.fingerprint = FingerprintOf(header_);
  header_.hash = Checksum(RowBytes(header_).first(kHeaderBytes - sizeof(header_.hash)));
  return sink_.ReplaceStart(RowBytes(header_));
}

std::vector<std::byte> EncodeKeyPage(std::span<const std::string> keys) {
  std::vector<std::byte> index;
  std::vector<std::byte> text;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i % kKeysPerIndexEntry == 0) AppendLe(index, static_cast<std::uint32_t>(text.size()));
    AppendLe(text, static_cast<std::uint16_t>(keys[i].size()));
    AppendText(text, keys[i]);
  }
  index.insert(index.end(), text.begin(), text.end());
  return index;
}

}  // namespace forebay::catalog
