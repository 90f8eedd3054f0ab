// Checks a catalog image. Checksums find damage; they do not find forgery, because anybody can
// compute XXH3. So every count, offset and size is also compared with what it indexes, in an order
// in which each check relies only on values that earlier ones have checked.
#include "server/catalog/storage/image_checker.h"

#include <algorithm>
#include <array>
#include <string>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/catalog/storage/image_section.h"

namespace forebay::catalog {
namespace {

constexpr std::array<std::string_view, kSectionCount> kSectionNames = {
    "meta", "parts", "objects", "name index", "names", "extents", "pages"};

// Run() is the only entry; the order of its calls matters.
class ImageChecker {
 public:
  explicit ImageChecker(std::span<const std::byte> image) : image_(image) {}

  Result<ImageTables> Run() {
    FOREBAY_TRY(CheckHeader());
    FOREBAY_TRY(CheckSections());
    FOREBAY_TRY(ReadMeta());
    FOREBAY_TRY(ReadParts());
    FOREBAY_TRY(CheckNames());
    FOREBAY_TRY(CheckExtents());
    FOREBAY_TRY(CheckFieldParts());
    return std::move(tables_);
  }

 private:
  Status CheckHeader();
  Status CheckCounts() const;
  Status CheckSections();
  Result<std::span<const std::byte>> Section(SectionKind kind, bool is_hashed) const;
  Status ReadMeta();
  Result<FieldPlan> ReadField(ByteReader& reader) const;
  Status ReadParts();
  Status CheckPart(std::uint32_t number, std::uint32_t extents_before) const;
  Status CheckFixedPart(std::uint32_t number) const;
  Status CheckNames();
  Status CheckExtents();
  Status CheckTableExtent(const PartRow& part, std::uint32_t extent, const ExtentRow& row);
  Status CheckObjectRange(std::uint32_t extent, const PartRow& part, const ExtentRow& row) const;
  Status CheckChain(std::uint32_t extent, const PartRow& part, const ExtentRow& row) const;
  Status CheckFieldParts() const;

  std::uint64_t OffsetOf(SectionKind kind) const {
    return tables_.header.sections[static_cast<std::size_t>(kind)].offset;
  }
  Error BadPart(std::uint32_t number, std::string_view reason) const {
    return DamagedImage(OffsetOf(SectionKind::kParts) + number * sizeof(PartRow),
                   "part " + std::to_string(number) + " " + std::string(reason));
  }
  Error BadExtent(std::uint32_t extent, std::string_view reason) const {
    return DamagedImage(OffsetOf(SectionKind::kExtents) + std::uint64_t{extent} * sizeof(ExtentRow),
                   "extent " + std::to_string(extent) + " " + std::string(reason));
  }

  std::span<const std::byte> image_;
  ImageTables tables_;
  // Extents of a part divide its samples among them, so one number tells whether a sample is
  // missing or comes twice.
  std::uint64_t next_sample_ = 0;  // that an extent of the current part must start with
};

// After this, the header's counts bound every loop over the tables.
Status ImageChecker::CheckHeader() {
  FOREBAY_TRY(CheckHoldsHeader(image_));
  tables_.header = LoadAt<HeaderRow>(image_, 0);
  const HeaderRow& header = tables_.header;
  const auto hashed = image_.first(kHeaderBytes - sizeof(header.hash));
  FOREBAY_TRY(CheckImageHead(image_, {.kind = "catalog",
                                      .has_magic = header.magic == kCatalogMagic,
                                      .matches_hash = Checksum(hashed) == header.hash,
                                      .version = header.version,
                                      .version_read = kCatalogVersion,
                                      .image_bytes = header.image_bytes}));
  return CheckCounts();
}

Status ImageChecker::CheckCounts() const {
  const HeaderRow& header = tables_.header;
  // The numbers in the errors below are offsets of the fields in the header.
  // Format has 8 bits. A larger number must not be cut to one that is known.
  if (FormatName(static_cast<Format>(header.format & 0xFF)) == "unknown" ||
      header.format > 0xFF) {
    return DamagedImage(12, "unknown data-set format " + std::to_string(header.format));
  }
  if (header.sample_count == 0 || header.sample_count > limits::kSampleCountMax ||
      header.object_count == 0 || header.object_count > limits::kObjectCountMax ||
      header.extent_count == 0 || header.extent_count > limits::kExtentCountMax ||
      header.field_count == 0 || header.field_count > limits::kFieldCountMax ||
      header.part_count == 0 || header.part_count > limits::kFieldCountMax) {
    return DamagedImage(24, "a count is zero or exceeds its published limit");
  }
  return {};
}

// Pages have no hash of their own here: hashing them would read the whole file at open. The extent
// table has a hash of each page, which is compared at the page's first use.
Result<std::span<const std::byte>> ImageChecker::Section(SectionKind kind,
                                                         bool is_hashed) const {
  const auto number = static_cast<std::size_t>(kind);
  return SectionBytes(image_, tables_.header.sections[number], kSectionNames[number], is_hashed);
}

// After this, each table has exactly as many rows as the header says.
Status ImageChecker::CheckSections() {
  const HeaderRow& header = tables_.header;
  FOREBAY_ASSIGN(tables_.objects, Section(SectionKind::kObjects, true));
  FOREBAY_ASSIGN(tables_.names.index, Section(SectionKind::kNameIndex, true));
  FOREBAY_ASSIGN(tables_.names.strings, Section(SectionKind::kNames, true));
  tables_.names.count = header.object_count;
  tables_.names.per_entry = kNamesPerIndexEntry;
  FOREBAY_ASSIGN(tables_.extents, Section(SectionKind::kExtents, true));
  FOREBAY_ASSIGN(tables_.pages, Section(SectionKind::kPages, false));
  // The fingerprint is computed again and not believed: clients and tokens name a catalog by it, so
  // a forged one could pass for another data set.
  if (FingerprintOf(header) != header.fingerprint) {
    return DamagedImage(40, "fingerprint does not match the tables");
  }
  if (tables_.objects.size() != std::uint64_t{header.object_count} * kObjectRowBytes ||
      tables_.extents.size() != std::uint64_t{header.extent_count} * sizeof(ExtentRow)) {
    return DamagedImage(48, "a table's size does not match the header's counts");
  }
  return {};
}

// Reads the data set's name and fields. The section must end with the last field, so that equal
// catalogs are equal byte by byte.
Status ImageChecker::ReadMeta() {
  FOREBAY_ASSIGN(const std::span<const std::byte> meta, Section(SectionKind::kMeta, true));
  ByteReader reader(meta);
  // ByteReader returns empty values after its first error, so one check after the loop is enough.
  tables_.name = std::string(reader.ReadString(limits::kNameBytesMax));
  for (std::uint32_t i = 0; i < tables_.header.field_count; ++i) {
    FOREBAY_ASSIGN(FieldPlan field, ReadField(reader));
    tables_.fields.push_back(std::move(field));
  }
  if (!reader.ok() || reader.remaining() != 0 || tables_.name.empty()) {
    return DamagedImage(OffsetOf(SectionKind::kMeta) + reader.offset(),
                        "the list of fields is malformed");
  }
  return {};
}

// Reads one field. Each count is bounded before the loop that it controls, so that a forged count
// costs no memory.
Result<FieldPlan> ImageChecker::ReadField(ByteReader& reader) const {
  FieldPlan field;
  field.spec.name = std::string(reader.ReadString(limits::kNameBytesMax));
  const auto dtype = DtypeFromNumber(reader.ReadLe<std::uint8_t>());
  const auto source = reader.ReadLe<std::uint8_t>();
  const auto big_endian = reader.ReadLe<std::uint8_t>();
  const std::uint64_t dimensions = reader.ReadVarint();
  // A function and not a value, so that the error has the offset at which the reader stopped.
  const auto malformed = [&] {
    return DamagedImage(OffsetOf(SectionKind::kMeta) + reader.offset(), "a field is malformed");
  };
  if (!reader.ok() || field.spec.name.empty() || !dtype.has_value() || big_endian > 1 ||
      source > static_cast<std::uint8_t>(FieldSource::kConstant) ||
      dimensions > limits::kDimensionCountMax) {
    return malformed();
  }
  field.spec.dtype = *dtype;
  field.spec.source = static_cast<FieldSource>(source);
  field.spec.big_endian = big_endian != 0;
  for (std::uint64_t i = 0; i < dimensions; ++i) {
    // Dimensions may be any numbers here; BytesPerSample below refuses a product that overflows.
    field.spec.shape.push_back(reader.ReadVarint());
  }
  const std::uint64_t part = reader.ReadVarint();
  const std::uint64_t constants = reader.ReadVarint();
  if (!reader.ok() || part >= tables_.header.part_count || constants > limits::kClassCountMax ||
      !field.spec.BytesPerSample().has_value()) {
    return malformed();
  }
  field.part = static_cast<std::uint32_t>(part);
  // `constants` may be forged, up to its limit. The loop ends where the section does, and each name
  // that it adds has been read from the section.
  for (std::uint64_t i = 0; i < constants && reader.ok(); ++i) {
    field.constant_names.emplace_back(reader.ReadString(limits::kNameBytesMax));
  }
  if (!reader.ok()) return malformed();
  return field;
}

// Reads the parts, whose extents follow one another without gaps.
Status ImageChecker::ReadParts() {
  const std::uint32_t count = tables_.header.part_count;
  FOREBAY_ASSIGN(const std::span<const std::byte> rows, Section(SectionKind::kParts, true));
  if (rows.size() != count * sizeof(PartRow)) {
    return DamagedImage(OffsetOf(SectionKind::kParts),
                        "the number of parts differs from the header's");
  }
  std::uint32_t extents_before = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    tables_.parts.push_back(LoadAt<PartRow>(rows, i * sizeof(PartRow)));
    FOREBAY_TRY(CheckPart(i, extents_before));
    // CheckPart has bounded this by the header's count, so the sum cannot wrap.
    extents_before += tables_.parts[i].extent_count;
  }
  if (extents_before != tables_.header.extent_count) {
    return BadPart(count - 1, "is the last part and does not end at the last extent");
  }
  return {};
}

// Checks one part against the header, and hands a fixed part on to its own check.
Status ImageChecker::CheckPart(std::uint32_t number, std::uint32_t extents_before) const {
  const PartRow& part = tables_.parts[number];
  const HeaderRow& header = tables_.header;
  // Subtraction, because the sum of two counts from the image could wrap.
  if (part.first_extent != extents_before || part.extent_count == 0 ||
      part.extent_count > header.extent_count - extents_before) {
    return BadPart(number, "has extents that do not follow those of the part before it");
  }
  if (part.object_count == 0 || part.first_object >= header.object_count ||
      part.object_count > header.object_count - part.first_object) {
    return BadPart(number, "has objects that the catalog does not have");
  }
  if (part.kind == static_cast<std::uint32_t>(PartKind::kFixed)) return CheckFixedPart(number);
  if (part.kind != static_cast<std::uint32_t>(PartKind::kFiles) &&
      part.kind != static_cast<std::uint32_t>(PartKind::kMembers)) {
    return BadPart(number, "has an unknown kind");
  }
  // A part with sample pages is the only one. CatalogImage relies on this and reads parts[0].
  if (header.part_count != 1 || part.first_object != 0 ||
      part.object_count != header.object_count) {
    return BadPart(number, "has sample pages and must be the only part");
  }
  const bool is_files = part.kind == static_cast<std::uint32_t>(PartKind::kFiles);
  if (part.entry_bytes != (is_files ? kFileEntryBytes : header.field_count * kMemberFieldBytes) ||
      (is_files && header.sample_count != header.object_count)) {
    return BadPart(number, "has entries of the wrong size or number");
  }
  return {};
}

// All records of a fixed part must lie within its object.
Status ImageChecker::CheckFixedPart(std::uint32_t number) const {
  const PartRow& part = tables_.parts[number];
  const std::uint64_t samples = tables_.header.sample_count;
  // CheckPart has compared `first_object` with the number of objects before it called this.
  const std::uint64_t object_bytes = tables_.ObjectBytes(part.first_object);
  if (part.object_count != 1 || part.entry_bytes != 0 || part.record_bytes == 0 ||
      part.data_offset > object_bytes ||
      samples > (object_bytes - part.data_offset) / part.record_bytes) {
    return BadPart(number, "has records beyond its object");
  }
  // The row does not hold the extent size that the writer was given, but it follows from the row.
  // Cutting the part again must give the same row, or computed locations would leave the extents.
  // A product that wraps here does no harm: it needs records of more than 2^44 bytes, which
  // CutFixedPart cuts into chains, and the row says that they are not.
  PartRow expected = part;
  const std::uint64_t extent_bytes =
      part.extents_per_record == 1 ? part.records_per_extent * part.record_bytes
                                   : part.chain_extent_bytes;
  if (part.records_per_extent > limits::kSamplesPerExtentMax || extent_bytes == 0 ||
      part.record_bytes > limits::kObjectBytesMax || extent_bytes > limits::kExtentBytesMax ||
      !CutFixedPart(samples, extent_bytes, expected).has_value() ||
      expected.records_per_extent != part.records_per_extent ||
      expected.extents_per_record != part.extents_per_record ||
      expected.chain_extent_bytes != part.chain_extent_bytes ||
      expected.extent_count != part.extent_count) {
    return BadPart(number, "is not cut into extents as its record size demands");
  }
  return {};
}

Status ImageChecker::CheckNames() {
  return CheckStrings(tables_.names, {.what = "name",
                                      .index_offset = OffsetOf(SectionKind::kNameIndex),
                                      .strings_offset = OffsetOf(SectionKind::kNames),
                                      .bytes_min = 1,
                                      .bytes_max = limits::kPathBytesMax});
}

// Checks every extent row. Rows of fixed parts are not needed for look-ups, but `stage` reads them,
// so they must equal what the part's row implies.
Status ImageChecker::CheckExtents() {
  // The sum cannot wrap: at most kExtentCountMax extents have at most kExtentBytesMax bytes each.
  // Rows of fixed parts follow from a checked part, the others from CheckTableExtent.
  std::uint64_t total_bytes = 0;
  for (std::uint32_t number = 0; number < tables_.header.part_count; ++number) {
    const PartRow& part = tables_.parts[number];
    next_sample_ = 0;
    for (std::uint32_t i = 0; i < part.extent_count; ++i) {
      const std::uint32_t extent = part.first_extent + i;
      const ExtentRow row = tables_.Extent(extent);
      if (part.kind == static_cast<std::uint32_t>(PartKind::kFixed)) {
        if (row != FixedExtent(part, number, tables_.header.sample_count, i)) {
          return BadExtent(extent, "differs from the extent that its part's row implies");
        }
      } else {
        FOREBAY_TRY(CheckTableExtent(part, extent, row));
      }
      total_bytes += row.bytes;
    }
    if (part.kind != static_cast<std::uint32_t>(PartKind::kFixed) &&
        next_sample_ != tables_.header.sample_count) {
      return BadPart(number, "has extents whose samples do not add up to the header's count");
    }
  }
  if (total_bytes != tables_.header.total_bytes) {
    return DamagedImage(32, "the header's total bytes differ from the sum over all extents");
  }
  return {};
}

// Checks an extent of a part with pages: its size, its objects, its samples and the place of its
// page.
Status ImageChecker::CheckTableExtent(const PartRow& part, std::uint32_t extent,
                                      const ExtentRow& row) {
  if (row.part != 0 || row.bytes == 0 || row.bytes > limits::kExtentBytesMax ||
      row.sample_count == 0 || row.sample_count > limits::kSamplesPerExtentMax) {
    return BadExtent(extent, "has an impossible size");
  }
  FOREBAY_TRY(CheckObjectRange(extent, part, row));
  if (row.continues()) {
    FOREBAY_TRY(CheckChain(extent, part, row));
  } else {
    // The samples of an extent all start in it, or none does: then it continues one.
    if (row.starting_count != row.sample_count || row.first_sample != next_sample_ ||
        row.sample_count > tables_.header.sample_count - next_sample_) {
      return BadExtent(extent, "has samples that do not follow those of the extent before it");
    }
    next_sample_ += row.sample_count;
  }
  // Pages lie in the order of extents. So each ends where the next begins, and none overlap.
  // The key page takes what follows the entries up to `end`. It may be of any size:
  // CatalogImage::VerifyKeys walks over it and never past its end.
  const std::uint64_t entries = std::uint64_t{row.starting_count} * part.entry_bytes;
  const std::uint64_t end = tables_.PageEnd(extent);
  if (row.page_offset > tables_.pages.size() || end > tables_.pages.size() ||
      row.page_offset > end || entries > end - row.page_offset) {
    return BadExtent(extent, "has its sample page out of place");
  }
  return {};
}

// An extent is a range of one object, or several whole objects one after another.
Status ImageChecker::CheckObjectRange(std::uint32_t extent, const PartRow& part,
                                      const ExtentRow& row) const {
  const std::uint32_t objects = tables_.header.object_count;
  if (row.object_count == 0 || row.first_object >= objects ||
      row.object_count > objects - row.first_object) {
    return BadExtent(extent, "has objects that the catalog does not have");
  }
  // Sample i of a files part is object i, so its location needs no stored length.
  if (part.kind == static_cast<std::uint32_t>(PartKind::kFiles) &&
      (row.first_object != row.first_sample || row.object_count != row.sample_count)) {
    return BadExtent(extent, "pairs samples with the wrong objects");
  }
  // A range of one object may begin anywhere; members of an archive do.
  if (row.object_count == 1) {
    const std::uint64_t bytes = tables_.ObjectBytes(row.first_object);
    if (row.object_offset > bytes || row.bytes > bytes - row.object_offset) {
      return BadExtent(extent, "runs past the end of its object");
    }
    return {};
  }
  // Stops as soon as the sum exceeds the extent: it cannot wrap, and a forged count costs no time.
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < row.object_count && sum <= row.bytes; ++i) {
    sum += tables_.ObjectBytes(row.first_object + i);
  }
  if (part.kind != static_cast<std::uint32_t>(PartKind::kFiles) || row.object_offset != 0 ||
      sum != row.bytes) {
    return BadExtent(extent, "does not consist of whole objects");
  }
  return {};
}

// Checks an extent that continues the sample of the extent before it: the same single sample, the
// same object, and the bytes that follow.
Status ImageChecker::CheckChain(std::uint32_t extent, const PartRow& part,
                                const ExtentRow& row) const {
  if (extent == part.first_extent) {
    return BadExtent(extent, "continues a sample, but is the first extent of its part");
  }
  const ExtentRow before = tables_.Extent(extent - 1);
  if (row.sample_count != 1 || row.first_sample != before.first_sample ||
      before.sample_count != 1 || row.first_object != before.first_object ||
      row.object_offset != before.object_offset + before.bytes) {
    return BadExtent(extent, "does not continue the extent before it");
  }
  // All extents of a spanning sample except the last have one size: CatalogImage divides by it. A
  // continuation always has an extent before it, so extent - 2 exists here.
  if (before.continues() && before.bytes != tables_.Extent(extent - 2).bytes) {
    return BadExtent(extent - 1, "differs in size from the extents that it continues");
  }
  if (row.bytes > before.bytes) {
    return BadExtent(extent, "is larger than the extent that it continues");
  }
  return {};
}

// Each kind of part supplies certain fields, at fixed numbers: CatalogImage::Locate reads fields[1]
// of a files part without looking.
Status ImageChecker::CheckFieldParts() const {
  std::uint32_t extent_fields = 0;
  for (std::uint32_t i = 0; i < tables_.header.field_count; ++i) {
    const FieldPlan& field = tables_.fields[i];
    const PartRow& part = tables_.parts[field.part];
    bool fits = false;
    if (field.spec.source == FieldSource::kConstant) {
      // The only constant is the label of a files part, a 64-bit number. A shape would need several
      // constants per sample, for which an entry has no room.
      fits = part.kind == static_cast<std::uint32_t>(PartKind::kFiles) && i == 1 &&
             field.spec.dtype == Dtype::kI64 && field.spec.shape.empty();
    } else if (part.kind == static_cast<std::uint32_t>(PartKind::kFixed)) {
      // A fixed part supplies one field, which fills its records.
      const auto bytes = field.spec.BytesPerSample();
      fits = field.part == i && bytes.has_value() && *bytes == part.record_bytes;
      ++extent_fields;
    } else {
      const bool is_files = part.kind == static_cast<std::uint32_t>(PartKind::kFiles);
      fits = !field.spec.is_fixed() && (!is_files || i == 0);
      ++extent_fields;
    }
    if (!fits) {
      return DamagedImage(OffsetOf(SectionKind::kMeta),
                     "field " + std::to_string(i) + " does not fit its part");
    }
  }
  // Every part supplies a field. A files part supplies two, the file and its label.
  const bool is_files =
      tables_.parts[0].kind == static_cast<std::uint32_t>(PartKind::kFiles);
  if (extent_fields < tables_.header.part_count ||
      (is_files && tables_.header.field_count != 2)) {
    return DamagedImage(OffsetOf(SectionKind::kMeta), "a part supplies too few fields");
  }
  return {};
}

}  // namespace

Result<ImageTables> CheckImage(std::span<const std::byte> image) {
  return ImageChecker(image).Run();
}

}  // namespace forebay::catalog
