// The form of a part for messages is a head, the extents, the records of the samples, and a
// checksum of all that (docs/catalog.md). PartDecoder reads it front to back and keeps what it has
// checked; the counts in the head bound its loops, but memory is only taken for what was read.
#include "server/catalog/catalog_part.h"

#include <algorithm>
#include <array>
#include <utility>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/dataset_source.h"
#include "server/catalog/input_error.h"

namespace forebay::catalog {
namespace {

constexpr std::uint64_t kPartMagic = 0x3154525059424546;  // "FEBYPRT1"
constexpr std::uint32_t kPartVersion = 1;
constexpr std::size_t kHeadBytes = 56;
constexpr std::size_t kExtentRowBytes = 20;
constexpr std::size_t kChecksumBytes = 8;

Error DamagedPart(const PlannedObject& object, std::string_view reason) {
  return Error(ErrorCode::kDataLoss,
               "the part of the catalog for " + Quoted(object.path) + " " + std::string(reason));
}

// Passes all bytes on, and computes their checksum.
class SummedSink {
 public:
  explicit SummedSink(ImageSink& sink) : sink_(sink) {}
  Status Append(std::span<const std::byte> bytes) {
    sum_.Update(bytes);
    return sink_.Append(bytes);
  }
  std::uint64_t sum() const { return sum_.Finish(); }

 private:
  ImageSink& sink_;
  ChecksumStream sum_;
};

}  // namespace

// A hash and not the values themselves, because a request names the object by it.
std::uint64_t HashOf(const PlannedObject& object) {
  ByteWriter words;
  words.String(object.path);
  words.Le(object.bytes);
  words.Le(static_cast<std::uint64_t>(object.mtime_ns));
  return Checksum(words.bytes());
}

PlannedObject PlannedObjectOf(const ObjectInfo& object) {
  return {.path = std::string(object.path), .bytes = object.bytes, .mtime_ns = object.mtime_ns};
}

Error TooManyFields(std::string_view path, const PartField& field) {
  return InputError(ErrorCode::kResourceExhausted, path, field.offset,
                    Quoted(field.name) + " would be a new field, but a data set has at most " +
                        std::to_string(limits::kFieldCountMax) + " fields (kFieldCountMax)");
}

Error TooManyExtents(std::string_view path, std::uint64_t object_offset) {
  return InputError(ErrorCode::kResourceExhausted, path, object_offset,
                    "more than " + std::to_string(limits::kExtentCountMax) +
                        " extents (kExtentCountMax): raise the data set's key 'extent'");
}

Result<std::uint8_t> CatalogPart::FieldNumber(std::string_view name, std::uint64_t offset) {
  // A linear search over at most kFieldCountMax fields.
  const auto known = std::ranges::find(fields_, name, &PartField::name);
  const auto number = static_cast<std::uint8_t>(known - fields_.begin());
  if (known != fields_.end()) return number;
  const PartField field{.name = std::string(name), .offset = offset};
  if (fields_.size() >= limits::kFieldCountMax) return TooManyFields(object_.path, field);
  fields_.push_back(field);
  return number;
}

Result<std::uint64_t> CatalogPart::AddSample(const SampleRecord& record,
                                             std::uint64_t extent_start) {
  return samples_.Append(record, extent_start);
}

Status CatalogPart::AddExtent(const PartExtent& extent, std::vector<Range> pieces,
                              std::vector<CutExtent>& cut) {
  if (extents_.size() >= limits::kExtentCountMax) {
    return TooManyExtents(object_.path, extent.object_offset);
  }
  // All numbers count within the object: those of the data set are known when the parts are merged.
  CutExtent added;
  added.number = ExtentId(static_cast<std::uint32_t>(extents_.size()));
  added.info.object_offset = extent.object_offset;
  added.info.bytes = extent.bytes;
  // An extent in which no sample begins continues the last sample of the extent before it.
  added.info.first_sample = SampleId(extent.continues() ? sample_count_ - 1 : sample_count_);
  added.info.sample_count = extent.sample_count;
  added.pieces = std::move(pieces);
  sample_count_ += extent.starting_count;
  extents_.push_back(extent);
  cut.push_back(std::move(added));
  return {};
}

PartTables TablesOf(Format format, const CatalogPart& part) {
  return {.format = format,
          .object = part.object(),
          .fields = part.fields(),
          .extents = part.extents(),
          .samples = part.samples(),
          .records = {.begin = 0, .end = part.samples().bytes()}};
}

Status EncodePart(const PartTables& part, ImageSink& sink) {
  // Written piece by piece, because the records of a large object do not fit in memory at once.
  SummedSink out(sink);
  // The counts come first, so that a receiver knows how many rows follow.
  ByteWriter head;
  head.Le(kPartMagic);
  head.Le(kPartVersion);
  head.Le(static_cast<std::uint32_t>(part.format));
  head.Le(part.object.bytes);
  head.Le(static_cast<std::uint64_t>(part.object.mtime_ns));
  head.Le(static_cast<std::uint32_t>(part.object.path.size()));
  head.Le(static_cast<std::uint32_t>(part.fields.size()));
  head.Le(std::uint64_t{part.extents.size()});
  head.Le(part.records.end - part.records.begin);
  head.Bytes(std::as_bytes(std::span(part.object.path)));
  for (const PartField& field : part.fields) {
    head.Le(static_cast<std::uint16_t>(field.name.size()));
    head.Bytes(std::as_bytes(std::span(field.name)));
    head.Le(field.offset);
  }
  FOREBAY_TRY(out.Append(head.bytes()));
  for (const PartExtent& extent : part.extents) {
    ByteWriter row;
    row.Le(extent.object_offset);
    row.Le(extent.bytes);
    row.Le(extent.sample_count);
    row.Le(extent.starting_count);
    FOREBAY_TRY(out.Append(row.bytes()));
  }
  FOREBAY_TRY(part.samples.ForEachPiece(
      part.records, [&out](std::span<const std::byte> piece) { return out.Append(piece); }));
  // Last and not covered by itself.
  ByteWriter end;
  end.Le(out.sum());
  return sink.Append(end.bytes());
}

// Reads one encoded part.
class PartDecoder {
 public:
  PartDecoder(Format format, const PlannedObject& object, const BuildScratch& scratch,
              const TableSpool& bytes)
      : format_(format),
        object_(object),
        bytes_(bytes),
        reader_(bytes),
        part_(std::make_unique<CatalogPart>(object, scratch)) {}

  Result<std::unique_ptr<CatalogPart>> Run();

 private:
  Status CheckSum() const;
  Status ReadHead();
  Status ReadFields();
  Status ReadExtents();
  Status CheckExtent(const PartExtent& extent) const;
  Status ReadSamples();

  const Format format_;
  const PlannedObject& object_;
  const TableSpool& bytes_;
  SpoolReader reader_;
  std::unique_ptr<CatalogPart> part_;
  // As the head says. The loops that they bound end at the end of the bytes at the latest.
  std::uint32_t field_count_ = 0;
  std::uint64_t extent_count_ = 0;
  std::uint64_t record_bytes_ = 0;
};

Result<std::unique_ptr<CatalogPart>> PartDecoder::Run() {
  // First, because the checksum tells damage on the way from a difference between two nodes.
  FOREBAY_TRY(CheckSum());
  FOREBAY_TRY(ReadHead());
  FOREBAY_TRY(ReadFields());
  FOREBAY_TRY(ReadExtents());
  FOREBAY_TRY(ReadSamples());
  return std::move(part_);
}

Status PartDecoder::CheckSum() const {
  if (bytes_.size() < kHeadBytes + kChecksumBytes) return DamagedPart(object_, "is incomplete");
  ChecksumStream sum;
  const std::uint64_t covered = bytes_.size() - kChecksumBytes;
  std::uint64_t seen = 0;
  FOREBAY_TRY(bytes_.ForEachPiece([&](std::span<const std::byte> piece) -> Status {
    // The checksum itself may begin within the last piece, or in the one before.
    const auto count = static_cast<std::size_t>(
        std::min<std::uint64_t>(piece.size(), covered - std::min(covered, seen)));
    sum.Update(piece.first(count));
    seen += piece.size();
    return {};
  }));
  std::array<std::byte, kChecksumBytes> expected;
  FOREBAY_TRY(bytes_.Read(covered, expected));
  if (ByteReader(expected).ReadLe<std::uint64_t>() == sum.Finish()) return {};
  return DamagedPart(object_, "does not match its checksum");
}

// The identity of the object is compared before anything is kept of the part.
Status PartDecoder::ReadHead() {
  FOREBAY_ASSIGN(const std::span<const std::byte> fixed, reader_.Take(kHeadBytes));
  ByteReader head(fixed);
  if (head.ReadLe<std::uint64_t>() != kPartMagic) return DamagedPart(object_, "is none");
  const auto version = head.ReadLe<std::uint32_t>();
  if (version != kPartVersion) {
    return Error(ErrorCode::kFailedPrecondition,
                 "the part of the catalog for " + Quoted(object_.path) + " has version " +
                     std::to_string(version) + ", expected " + std::to_string(kPartVersion) +
                     ": start all nodes with one version of forebayd");
  }
  const auto format = head.ReadLe<std::uint32_t>();
  PlannedObject theirs;
  theirs.bytes = head.ReadLe<std::uint64_t>();
  theirs.mtime_ns = static_cast<std::int64_t>(head.ReadLe<std::uint64_t>());
  const auto path_bytes = head.ReadLe<std::uint32_t>();
  field_count_ = head.ReadLe<std::uint32_t>();
  extent_count_ = head.ReadLe<std::uint64_t>();
  record_bytes_ = head.ReadLe<std::uint64_t>();
  if (path_bytes > limits::kPathBytesMax || field_count_ > limits::kFieldCountMax ||
      extent_count_ > limits::kExtentCountMax) {
    return DamagedPart(object_, "exceeds a published limit");
  }
  FOREBAY_ASSIGN(const std::span<const std::byte> path, reader_.Take(path_bytes));
  theirs.path.assign(reinterpret_cast<const char*>(path.data()), path.size());
  if (format != static_cast<std::uint32_t>(format_)) {
    return DamagedPart(object_, "is of another format");
  }
  if (theirs.path != object_.path) {
    return DamagedPart(object_, "is that of " + Quoted(theirs.path));
  }
  return CheckSameObject(object_, theirs);
}

// Samples refer to fields by their numbers in this list.
Status PartDecoder::ReadFields() {
  for (std::uint32_t i = 0; i < field_count_; ++i) {
    FOREBAY_ASSIGN(const std::span<const std::byte> length, reader_.Take(sizeof(std::uint16_t)));
    const auto name_bytes = ByteReader(length).ReadLe<std::uint16_t>();
    if (name_bytes == 0 || name_bytes > limits::kNameBytesMax) {
      return DamagedPart(object_, "has a field without a proper name");
    }
    FOREBAY_ASSIGN(const std::span<const std::byte> raw, reader_.Take(name_bytes));
    const std::string name(reinterpret_cast<const char*>(raw.data()), raw.size());
    FOREBAY_ASSIGN(const std::span<const std::byte> place, reader_.Take(sizeof(std::uint64_t)));
    // A field that is there already would get an earlier number.
    FOREBAY_ASSIGN(const std::uint8_t number,
                   part_->FieldNumber(name, ByteReader(place).ReadLe<std::uint64_t>()));
    if (number != i) return DamagedPart(object_, "has a field twice");
  }
  return {};
}

// Whether the extent lies in the object, behind those that were read before.
Status PartDecoder::CheckExtent(const PartExtent& extent) const {
  const std::uint64_t object_bytes = object_.bytes;
  if (extent.bytes == 0 || extent.bytes > limits::kExtentBytesMax ||
      extent.object_offset > object_bytes ||
      extent.bytes > object_bytes - extent.object_offset) {
    return DamagedPart(object_, "has an extent that does not lie in the object");
  }
  const bool is_first = part_->extents_.empty();
  if (!is_first) {
    const PartExtent& before = part_->extents_.back();
    if (extent.object_offset < before.object_offset + before.bytes) {
      return DamagedPart(object_, "has extents that overlap");
    }
  }
  const bool is_possible = extent.continues()
                               ? !is_first && extent.sample_count == 1
                               : extent.sample_count == extent.starting_count &&
                                     extent.sample_count <= limits::kSamplesPerExtentMax;
  return is_possible ? Status() : DamagedPart(object_, "has an extent with impossible samples");
}

// Added to the lists directly: AddExtent would also make a CutExtent, which only a scan needs.
Status PartDecoder::ReadExtents() {
  for (std::uint64_t i = 0; i < extent_count_; ++i) {
    FOREBAY_ASSIGN(const std::span<const std::byte> bytes, reader_.Take(kExtentRowBytes));
    ByteReader row(bytes);
    PartExtent extent;
    extent.object_offset = row.ReadLe<std::uint64_t>();
    extent.bytes = row.ReadLe<std::uint32_t>();
    extent.sample_count = row.ReadLe<std::uint32_t>();
    extent.starting_count = row.ReadLe<std::uint32_t>();
    FOREBAY_TRY(CheckExtent(extent));
    part_->extents_.push_back(extent);
    part_->sample_count_ += extent.starting_count;
  }
  return {};
}

// The records follow one another without an index, so the extents say how many there are.
Status PartDecoder::ReadSamples() {
  const std::uint64_t end = bytes_.size() - kChecksumBytes;
  if (reader_.offset() > end || record_bytes_ != end - reader_.offset()) {
    return DamagedPart(object_, "has samples of another size than it says");
  }
  const std::vector<PartExtent>& extents = part_->extents_;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i].continues()) continue;
    // A sample may continue in the extents of its chain.
    SampleRecords::Bounds bounds{.field_count = field_count_, .bytes = extents[i].bytes};
    for (std::size_t k = i + 1; k < extents.size() && extents[k].continues(); ++k) {
      bounds.bytes += extents[k].bytes;
    }
    for (std::uint32_t k = 0; k < extents[i].starting_count; ++k) {
      const Status read = part_->samples_.AppendChecked(reader_, bounds);
      if (!read.has_value()) return read.error().WithContext(Quoted(object_.path));
      // The checksum is no sample.
      if (reader_.offset() > end) return DamagedPart(object_, "ends within a sample");
    }
  }
  return reader_.offset() == end ? Status() : DamagedPart(object_, "has bytes after its samples");
}

Result<std::unique_ptr<CatalogPart>> DecodePart(Format format, const PlannedObject& object,
                                                const BuildScratch& scratch,
                                                const TableSpool& bytes) {
  return PartDecoder(format, object, scratch, bytes).Run();
}

// The message has both sides, because nobody can see from one node which of them is stale.
Status CheckSameObject(const PlannedObject& ours, const PlannedObject& theirs) {
  if (HashOf(ours) == HashOf(theirs)) return {};
  return Error(ErrorCode::kFailedPrecondition,
               Quoted(ours.path) + " has " + std::to_string(ours.bytes) +
                   " bytes and modification time " + std::to_string(ours.mtime_ns) +
                   " ns on this node, and " + std::to_string(theirs.bytes) + " bytes and " +
                   std::to_string(theirs.mtime_ns) +
                   " ns on another one; objects must not change during a job");
}

// The samples of the object are read through the interface of the catalog, so that every check of
// the image holds for them.
Result<std::unique_ptr<CatalogPart>> CatalogPartOf(const Catalog& catalog, ObjectId object,
                                                   const BuildScratch& scratch) {
  auto part = std::make_unique<CatalogPart>(PlannedObjectOf(catalog.object(object)), scratch);
  const std::span<const FieldSpec> fields = catalog.fields();
  std::vector<FieldLocation> locations(fields.size());
  std::vector<CutExtent> unused;
  const std::uint32_t count = catalog.extent_count();
  std::uint64_t next_sample = 0;  // the first sample that no extent has started yet
  for (std::uint32_t i = FirstExtentOf(catalog, object).value(); i < count; ++i) {
    const ExtentInfo info = catalog.extent(ExtentId(i));
    if (info.first_object != object) break;
    const bool is_first = part->extents().empty();
    // The extent of a chain after its first one has the same sample as the one before it.
    const bool continues = !is_first && info.first_sample.value() < next_sample;
    if (!continues) next_sample = info.first_sample.value() + info.sample_count;
    unused.clear();
    FOREBAY_TRY(part->AddExtent({.object_offset = info.object_offset,
                                 .bytes = static_cast<std::uint32_t>(info.bytes),
                                 .sample_count = info.sample_count,
                                 .starting_count = continues ? 0 : info.sample_count},
                                {}, unused));
    if (continues) continue;
    for (std::uint32_t k = 0; k < info.sample_count; ++k) {
      const SampleId sample(info.first_sample.value() + k);
      SampleRecord record;
      FOREBAY_ASSIGN(record.key, catalog.SampleKey(sample));
      FOREBAY_TRY(catalog.samples()->Locate(sample, locations));
      for (std::size_t f = 0; f < fields.size(); ++f) {
        if (!locations[f].present) continue;
        const Range& range = locations[f].range;
        const std::uint64_t offset = catalog.extent(range.extent).object_offset + range.offset;
        FOREBAY_ASSIGN(const std::uint8_t number, part->FieldNumber(fields[f].name, offset));
        record.fields.push_back({.field = number, .offset = offset, .length = range.length});
      }
      FOREBAY_TRY(part->AddSample(record, info.object_offset));
    }
  }
  return part;
}

}  // namespace forebay::catalog
