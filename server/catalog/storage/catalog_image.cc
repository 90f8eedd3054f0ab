// Look-ups in a catalog image. A sample of fixed-size records is located by arithmetic. Any other
// sample is located in three steps: a small index in memory gives a range of extents, a binary
// search in the extent table finds the extent in which the sample starts, and the extent's sample
// page has its entry. A page of a mapped image is verified at its first use, hash and bounds, so
// opening 10^8 samples stays cheap.
#include "server/catalog/storage/catalog_image.h"

#include <algorithm>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/storage/image_checker.h"

namespace forebay::catalog {
namespace {

// Bounds the sample index to 4 MiB for any number of samples.
constexpr std::uint64_t kSampleIndexEntriesMax = 1ULL << 20;

// A look-up touches three places of the image at most: the row of an extent, one entry of its page,
// and the row of an object. Where it reads the whole page, PageWindows adds to this.
constexpr std::uint64_t kWindowsPerLookup = 3;

constexpr unsigned kEntriesBit = 0;
constexpr unsigned kKeysBit = 1;
constexpr std::uint32_t kBitsPerExtent = 2;

// A catalog has parts of kind kFixed only, or one part of another kind. So parts[0] decides for
// all.
bool IsKind(const PartRow& part, PartKind kind) {
  return part.kind == static_cast<std::uint32_t>(kind);
}

MemberRange LoadMember(std::span<const std::byte> entries, std::size_t at) {
  return {LoadAt<std::uint32_t>(entries, at), LoadAt<std::uint32_t>(entries, at + 4)};
}

}  // namespace

Result<std::shared_ptr<const Catalog>> Catalog::FromBytes(std::vector<std::byte> image) {
  return OpenImage(ImageBytes(std::move(image)));
}

Result<std::shared_ptr<const Catalog>> OpenImage(ImageBytes bytes, PageCheck check) {
  // A format with an image of its own recognises it by its magic number. The number decides only
  // which checks run: `open_image` checks the whole header again.
  for (const FormatDriver* driver : FormatDrivers()) {
    if (driver->is_own_image != nullptr && driver->is_own_image(bytes.bytes())) {
      return driver->open_image(std::move(bytes));
    }
  }
  FOREBAY_ASSIGN(ImageTables tables, CheckImage(bytes.bytes()));
  bytes.DropResidentPages();
  auto image = std::make_shared<const CatalogImage>(std::move(bytes), std::move(tables));
  if (check == PageCheck::kAtOnce) FOREBAY_TRY(image->VerifyPages());
  return image;
}

Result<std::shared_ptr<const Catalog>> Catalog::Load(const std::string& absolute_path) {
  FOREBAY_ASSIGN(ImageBytes bytes, ImageBytes::FromFile(absolute_path));
  // An image that was read lies in memory, so all of it is verified now: the caller can still build
  // another catalog. If a stream finds the damage later, only `forebay stage --rebuild` mends it.
  const PageCheck check = bytes.is_mapped() ? PageCheck::kAtFirstUse : PageCheck::kAtOnce;
  Result<std::shared_ptr<const Catalog>> opened = OpenImage(std::move(bytes), check);
  if (!opened.has_value()) return opened.error().WithContext(Quoted(absolute_path));
  return opened;
}

// The words of `verified_` start as zero: no page has been checked yet.
// Moving `bytes` moves a pointer, so the spans in `tables` stay valid.
CatalogImage::CatalogImage(ImageBytes bytes, ImageTables tables)
    : bytes_(std::move(bytes)), tables_(std::move(tables)) {
  for (const FieldPlan& field : tables_.fields) specs_.push_back(field.spec);
  const std::size_t words = (std::size_t{extent_count()} * kBitsPerExtent + 63) / 64;
  verified_ = std::make_unique<std::atomic<std::uint64_t>[]>(words);
  BuildSampleIndex();
}

void CatalogImage::BuildSampleIndex() {
  if (IsKind(tables_.parts[0], PartKind::kFixed)) return;
  // More samples share an entry until the index fits its bound. The binary search covers the rest.
  // The shift starts at 8: with 256 samples per entry, small catalogs get a small index.
  while ((sample_count() - 1) >> index_shift_ >= kSampleIndexEntriesMax) ++index_shift_;
  sample_index_.reserve(((sample_count() - 1) >> index_shift_) + 1);
  for (std::uint32_t i = 0; i < extent_count(); ++i) {
    const ExtentRow row = tables_.Extent(i);
    // An extent with many samples fills several entries, one with few fills none.
    // A continuation starts no sample, so the index never leads into the middle of a chain.
    while (!row.continues() &&
           sample_index_.size() << index_shift_ < row.first_sample + row.starting_count) {
      sample_index_.push_back(i);
    }
  }
}

std::uint32_t CatalogImage::PartOf(FieldId field) const {
  FOREBAY_CHECK(field.value() < tables_.fields.size());
  return tables_.fields[field.value()].part;
}

ObjectInfo CatalogImage::object(ObjectId object) const {
  FOREBAY_CHECK(object.value() < object_count());
  ObjectInfo info;
  info.path = tables_.names.At(object.value());
  info.bytes = tables_.ObjectBytes(object.value());
  // A row has 48 bits of size and then the time, without padding.
  info.mtime_ns = LoadAt<std::int64_t>(
      tables_.objects, std::size_t{object.value()} * kObjectRowBytes + 6);
  return info;
}

ExtentInfo CatalogImage::extent(ExtentId extent) const {
  FOREBAY_CHECK(extent.value() < extent_count());
  const ExtentRow row = tables_.Extent(extent.value());
  ExtentInfo info;
  info.part = row.part;
  info.first_object = ObjectId(row.first_object);
  info.object_count = row.object_count;
  info.object_offset = row.object_offset;
  info.bytes = row.bytes;
  info.first_sample = SampleId(row.first_sample);
  info.sample_count = row.sample_count;
  return info;
}

std::vector<std::string_view> CatalogImage::ConstantNames(FieldId field) const {
  FOREBAY_CHECK(field.value() < tables_.fields.size());
  const std::vector<std::string>& names = tables_.fields[field.value()].constant_names;
  return {names.begin(), names.end()};
}

// Returns the extent in which the sample starts.
std::uint32_t CatalogImage::FirstExtentOf(std::uint64_t sample) const {
  bytes_.NoteTouched(kWindowsPerLookup);
  const std::uint64_t entry = sample >> index_shift_;
  std::uint32_t low = sample_index_[entry];
  std::uint32_t high =
      entry + 1 < sample_index_.size() ? sample_index_[entry + 1] : extent_count() - 1;
  // The index names the extents of two samples that are 2^index_shift_ apart, and this sample
  // starts in one of them or between them. `high` is included, because the next entry's sample may
  // start in the same extent.
  // Finds the first extent whose samples end after `sample`. This is never a continuation: the head
  // of its chain names the same sample and comes first.
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const ExtentRow row = tables_.Extent(middle);
    if (row.first_sample + row.sample_count > sample) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Locates a fixed-size record by arithmetic. FixedExtent (catalog_format.h) is the other direction.
Range CatalogImage::FixedRange(const PartRow& part, std::uint64_t sample) const {
  Range range;
  range.length = part.record_bytes;
  if (part.extents_per_record == 1) {
    // Both the number of the extent and the offset fit in 32 bits: ImageChecker::CheckFixedPart has
    // compared the row with the limits of extents.
    const std::uint64_t index = sample / part.records_per_extent;
    range.extent = ExtentId(part.first_extent + static_cast<std::uint32_t>(index));
    range.offset = static_cast<std::uint32_t>((sample - index * part.records_per_extent) *
                                              part.record_bytes);
  } else {
    range.extent = ExtentId(part.first_extent +
                            static_cast<std::uint32_t>(sample * part.extents_per_record));
  }
  return range;
}

Range CatalogImage::Resolve(std::uint32_t extent, const ExtentRow& row,
                            Interval interval) const {
  Range range;
  range.extent = ExtentId(extent);
  range.length = interval.end - interval.begin;
  std::uint64_t offset = interval.begin;
  if (range.length == 0) {
    // An empty range may start at the very end of the last extent, where no extent follows. It
    // covers no byte, so it is given a place in the first extent.
    offset = std::min<std::uint64_t>(offset, row.bytes);
  } else if (offset >= row.bytes) {
    // Division finds the extent, because all extents of a chain but the last have one size
    // (ImageChecker::CheckChain).
    range.extent = ExtentId(extent + static_cast<std::uint32_t>(offset / row.bytes));
    offset %= row.bytes;
  }
  range.offset = static_cast<std::uint32_t>(offset);
  return range;
}

// The sample page of an extent. The checker has compared its bounds with the section of pages.
// Only the entries are returned; the page's hash is compared by VerifyEntries, which callers run
// first.
std::span<const std::byte> CatalogImage::Entries(const ExtentRow& row) const {
  return tables_.pages.subspan(
      row.page_offset, std::size_t{row.starting_count} * tables_.parts[0].entry_bytes);
}

std::span<const std::byte> CatalogImage::Keys(std::uint32_t extent, const ExtentRow& row) const {
  const std::uint64_t offset = row.page_offset + Entries(row).size();
  return tables_.pages.subspan(offset, tables_.PageEnd(extent) - offset);
}

std::uint64_t CatalogImage::PageWindows(const ExtentRow& row) const {
  std::uint64_t windows = ImageBytes::FurtherWindows(Entries(row).size());
  // The length of a file is in the table of objects.
  if (IsKind(tables_.parts[0], PartKind::kFiles)) {
    windows += ImageBytes::FurtherWindows(row.starting_count * kObjectRowBytes);
  }
  return windows;
}

CatalogImage::Interval CatalogImage::EntryInterval(const ExtentRow& row,
                                                   std::uint32_t index) const {
  const std::span<const std::byte> entries = Entries(row);
  const std::size_t entry_bytes = tables_.parts[0].entry_bytes;
  if (IsKind(tables_.parts[0], PartKind::kFiles)) {
    const auto offset = LoadAt<std::uint32_t>(entries, index * entry_bytes);
    return {offset, offset + tables_.ObjectBytes(row.first_object + index)};
  }
  // A file's entry has no length: it is the object's. A member sample runs from the first byte of
  // any of its fields to the last.
  Interval interval{~std::uint64_t{0}, 0};
  for (std::size_t at = 0; at < entry_bytes; at += kMemberFieldBytes) {
    const MemberRange member = LoadMember(entries, index * entry_bytes + at);
    if (member.offset == kAbsentField) continue;
    interval.begin = std::min<std::uint64_t>(interval.begin, member.offset);
    interval.end = std::max(interval.end, std::uint64_t{member.offset} + member.length);
  }
  return interval;
}

// The bits say only that a check succeeded. What was checked lies in the immutable image, so
// nothing else has to become visible with them.
bool CatalogImage::IsVerified(std::uint32_t extent, unsigned bit) const {
  const std::size_t index = std::size_t{extent} * kBitsPerExtent + bit;
  return (verified_[index / 64].load(std::memory_order_acquire) >> (index % 64) & 1) != 0;
}

void CatalogImage::SetVerified(std::uint32_t extent, unsigned bit) const {
  const std::size_t index = std::size_t{extent} * kBitsPerExtent + bit;
  verified_[index / 64].fetch_or(std::uint64_t{1} << (index % 64), std::memory_order_release);
}

Error CatalogImage::PageError(std::uint32_t extent, std::uint64_t page_offset,
                              std::string reason) const {
  const auto pages = static_cast<std::size_t>(SectionKind::kPages);
  return Error(ErrorCode::kDataLoss,
               "catalog " + Quoted(name()) + " at offset " +
                   std::to_string(tables_.header.sections[pages].offset + page_offset) +
                   ": page of extent " + std::to_string(extent) + " " + std::move(reason) +
                   " (remedy: forebay stage --rebuild " + PrintableLine(name()) + ")");
}

Status CatalogImage::VerifyPages() const {
  if (IsKind(tables_.parts[0], PartKind::kFixed)) return {};
  for (std::uint32_t extent = 0; extent < extent_count(); ++extent) {
    const ExtentRow row = tables_.Extent(extent);
    // Where no sample starts, as in a continuation, there is no page.
    if (row.starting_count == 0) continue;
    FOREBAY_TRY(VerifyEntries(extent, row));
    if (IsKind(tables_.parts[0], PartKind::kFiles)) continue;
    FOREBAY_TRY(VerifyKeys(extent, row, Keys(extent, row)));
  }
  return {};
}

Status CatalogImage::VerifyEntries(std::uint32_t extent, const ExtentRow& row) const {
  if (IsVerified(extent, kEntriesBit)) return {};
  bytes_.NoteTouched(PageWindows(row));
  // Two threads can both arrive here. They check the same bytes twice, which is cheaper than a lock
  // on every look-up.
  // The hash finds damage. The bounds are checked as well, because a forged image can have right
  // hashes, and no access may leave an extent.
  if (Checksum(Entries(row)) != row.entries_hash) {
    return PageError(extent, row.page_offset, "does not match its checksum");
  }
  if (IsKind(tables_.parts[0], PartKind::kFiles)) {
    FOREBAY_TRY(CheckFileEntries(extent, row));
  } else {
    FOREBAY_TRY(CheckMemberEntries(extent, row));
  }
  SetVerified(extent, kEntriesBit);
  return {};
}

// Checks the page of a files part: each entry's offset is the end of the file before it, and its
// label is a class that exists.
Status CatalogImage::CheckFileEntries(std::uint32_t extent, const ExtentRow& row) const {
  const std::span<const std::byte> entries = Entries(row);
  // Field 1 exists: ImageChecker::CheckFieldParts accepts a files part only with exactly two
  // fields.
  const std::size_t constants = tables_.fields[1].constant_names.size();
  std::uint64_t offset = 0;
  for (std::uint32_t i = 0; i < row.starting_count; ++i) {
    const std::size_t at = i * kFileEntryBytes;
    const std::uint64_t bytes = tables_.ObjectBytes(row.first_object + i);
    if (LoadAt<std::uint32_t>(entries, at) != offset ||
        LoadAt<std::uint32_t>(entries, at + 4) >= constants || bytes > limits::kSampleBytesMax) {
      return PageError(extent, row.page_offset + at, "has an impossible entry");
    }
    offset += bytes;
  }
  // The samples are whole objects. Several fill their extent exactly; a single one fills its chain.
  if (row.object_offset != 0 || offset != ChainBytes(extent, row)) {
    return PageError(extent, row.page_offset, "does not cover its objects");
  }
  return {};
}

// The loop ends at the first extent that starts a sample, so it takes one step for all but the
// heads of chains.
std::uint64_t CatalogImage::ChainBytes(std::uint32_t extent, const ExtentRow& row) const {
  std::uint64_t bytes = row.bytes;
  for (std::uint32_t next = extent + 1; next < extent_count(); ++next) {
    const ExtentRow following = tables_.Extent(next);
    if (!following.continues()) break;
    bytes += following.bytes;
  }
  return bytes;
}

// Checks the page of a members part: every field lies within its chain of extents, and samples do
// not overlap. Pieces get checksums of their own, so an overlap would count bytes twice.
Status CatalogImage::CheckMemberEntries(std::uint32_t extent, const ExtentRow& row) const {
  const std::uint64_t chain_bytes = ChainBytes(extent, row);
  const std::span<const std::byte> entries = Entries(row);
  const std::size_t entry_bytes = tables_.parts[0].entry_bytes;
  std::uint64_t previous_end = 0;
  for (std::uint32_t i = 0; i < row.starting_count; ++i) {
    for (std::size_t at = 0; at < entry_bytes; at += kMemberFieldBytes) {
      const MemberRange member = LoadMember(entries, i * entry_bytes + at);
      const bool is_absent = member.offset == kAbsentField;
      if (is_absent ? member.length != kAbsentField
                    : member.offset > chain_bytes ||
                          member.length > chain_bytes - member.offset) {
        return PageError(extent, row.page_offset + i * entry_bytes, "has an impossible entry");
      }
    }
    // A sample without any field has begin > end here, and is refused like an overlap.
    const Interval interval = EntryInterval(row, i);
    if (interval.begin < previous_end || interval.begin > interval.end ||
        interval.begin > row.bytes) {
      return PageError(extent, row.page_offset + i * entry_bytes, "has samples out of order");
    }
    previous_end = interval.end;
  }
  return {};
}

Status CatalogImage::Locate(SampleId sample, std::span<FieldLocation> locations) const {
  FOREBAY_CHECK(sample.value() < sample_count() && locations.size() == specs_.size());
  if (IsKind(tables_.parts[0], PartKind::kFixed)) {
    // Each field has a part of its own, and no page is touched, so this cannot fail.
    for (std::size_t i = 0; i < locations.size(); ++i) {
      const PartRow& part = tables_.parts[tables_.fields[i].part];
      locations[i] = {.present = true, .range = FixedRange(part, sample.value()), .constant = 0};
    }
    return {};
  }
  const std::uint32_t extent = FirstExtentOf(sample.value());
  const ExtentRow row = tables_.Extent(extent);
  FOREBAY_TRY(VerifyEntries(extent, row));
  const auto index = static_cast<std::uint32_t>(sample.value() - row.first_sample);
  const std::span<const std::byte> entries = Entries(row);
  const std::size_t entry_bytes = tables_.parts[0].entry_bytes;
  if (IsKind(tables_.parts[0], PartKind::kFiles)) {
    const Range range = Resolve(extent, row, EntryInterval(row, index));
    locations[0] = {.present = true, .range = range, .constant = 0};
    locations[1] = {.present = true,
                    .range = {},
                    .constant = LoadAt<std::uint32_t>(entries, index * entry_bytes + 4)};
    return {};
  }
  for (std::size_t i = 0; i < locations.size(); ++i) {
    const MemberRange member =
        LoadMember(entries, index * entry_bytes + i * kMemberFieldBytes);
    locations[i] = {};
    if (member.offset == kAbsentField) continue;
    locations[i].present = true;
    locations[i].range = Resolve(
        extent, row, {member.offset, std::uint64_t{member.offset} + member.length});
  }
  return {};
}

Result<Range> CatalogImage::SampleRange(SampleId sample, std::uint32_t part) const {
  FOREBAY_CHECK(sample.value() < sample_count() && part < part_count());
  if (IsKind(tables_.parts[part], PartKind::kFixed)) {
    return FixedRange(tables_.parts[part], sample.value());
  }
  const std::uint32_t extent = FirstExtentOf(sample.value());
  const ExtentRow row = tables_.Extent(extent);
  FOREBAY_TRY(VerifyEntries(extent, row));
  const auto index = static_cast<std::uint32_t>(sample.value() - row.first_sample);
  return Resolve(extent, row, EntryInterval(row, index));
}

// The pieces of fixed-size records: one per record, or the whole extent if a record spans extents.
void CatalogImage::FixedPieces(const PartRow& part, ExtentId extent, const ExtentRow& row,
                               std::vector<Range>& pieces) const {
  if (part.extents_per_record > 1) {
    pieces.push_back({.extent = extent, .offset = 0, .length = row.bytes});
    return;
  }
  // A piece per record although all have one size: each record has a checksum of its own, so that
  // one sample can be verified without reading the whole extent.
  for (std::uint32_t i = 0; i < row.sample_count; ++i) {
    const auto offset = static_cast<std::uint32_t>(i * part.record_bytes);
    pieces.push_back({.extent = extent, .offset = offset, .length = part.record_bytes});
  }
}

Status CatalogImage::Pieces(ExtentId extent, std::vector<Range>& pieces) const {
  FOREBAY_CHECK(extent.value() < extent_count());
  const ExtentRow row = tables_.Extent(extent.value());
  const PartRow& part = tables_.parts[row.part];
  if (IsKind(part, PartKind::kFixed)) {
    FixedPieces(part, extent, row, pieces);
    return {};
  }
  bytes_.NoteTouched(kWindowsPerLookup);
  // The sample of a continuation is listed in the page of the first extent of the chain, its head.
  std::uint32_t head = extent.value();
  std::uint64_t image_begin = 0;  // of `extent`, counted from the head's first byte
  ExtentRow head_row = row;
  while (head_row.continues()) {
    head_row = tables_.Extent(--head);
    image_begin += head_row.bytes;
  }
  FOREBAY_TRY(VerifyEntries(head, head_row));
  bytes_.NoteTouched(PageWindows(head_row));
  // The bytes of a sample that lie outside this extent are clamped away.
  for (std::uint32_t i = 0; i < row.sample_count; ++i) {
    const Interval interval = EntryInterval(head_row, i);
    const std::uint64_t image_end = image_begin + row.bytes;
    // A piece may be empty: all fields of a sample may have no bytes.
    const std::uint64_t begin = std::clamp(interval.begin, image_begin, image_end);
    const std::uint64_t end = std::clamp(interval.end, begin, image_end);
    pieces.push_back({.extent = extent,
                      .offset = static_cast<std::uint32_t>(begin - image_begin),
                      .length = end - begin});
  }
  return {};
}

Status CatalogImage::VerifyKeys(std::uint32_t extent, const ExtentRow& row,
                                std::span<const std::byte> keys) const {
  if (IsVerified(extent, kKeysBit)) return {};
  bytes_.NoteTouched(ImageBytes::FurtherWindows(keys.size()));
  // Pages are padded to 8 bytes, so the end of the key page is found by walking over its keys. The
  // lengths are not trusted yet: each one is compared with what is left before it is used.
  const std::size_t blocks = (row.starting_count - 1) / kKeysPerIndexEntry + 1;
  const std::uint64_t page_offset = row.page_offset + Entries(row).size();
  const std::size_t index_bytes = blocks * sizeof(std::uint32_t);
  const auto bad = [&] { return PageError(extent, page_offset, "has damaged keys"); };
  if (keys.size() < index_bytes) return bad();
  const std::span<const std::byte> text = keys.subspan(index_bytes);
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < row.starting_count; ++i) {
    if (i % kKeysPerIndexEntry == 0 &&
        LoadAt<std::uint32_t>(keys, i / kKeysPerIndexEntry * sizeof(std::uint32_t)) != at) {
      return bad();
    }
    if (text.size() - at < sizeof(std::uint16_t)) return bad();
    const auto length = LoadAt<std::uint16_t>(text, at);
    at += sizeof(std::uint16_t);
    if (length > limits::kPathBytesMax || length > text.size() - at) return bad();
    at += length;
  }
  if (Checksum(keys.first(index_bytes + at)) != row.keys_hash) return bad();
  SetVerified(extent, kKeysBit);
  return {};
}

Result<std::string> CatalogImage::SampleKey(SampleId sample) const {
  FOREBAY_CHECK(sample.value() < sample_count());
  // Only samples of members have keys of their own in the image.
  if (IsKind(tables_.parts[0], PartKind::kFixed)) return std::to_string(sample.value());
  if (IsKind(tables_.parts[0], PartKind::kFiles)) {
    return std::string(object(ObjectId(static_cast<std::uint32_t>(sample.value()))).path);
  }
  const std::uint32_t extent = FirstExtentOf(sample.value());
  const ExtentRow row = tables_.Extent(extent);
  const std::span<const std::byte> keys = Keys(extent, row);
  // Keys are checked apart from entries, because training reads no keys, and their bytes would be
  // most of what a look-up touches.
  FOREBAY_TRY(VerifyKeys(extent, row, keys));
  // The index leads to the first key of a block of 16; the rest of the way goes from key to key.
  const std::uint64_t index = sample.value() - row.first_sample;
  const std::uint64_t block = index / kKeysPerIndexEntry;
  const std::size_t blocks = (row.starting_count - 1) / kKeysPerIndexEntry + 1;
  std::size_t at = blocks * sizeof(std::uint32_t) +
                   LoadAt<std::uint32_t>(keys, block * sizeof(std::uint32_t));
  for (std::uint64_t i = block * kKeysPerIndexEntry; i < index; ++i) {
    at += sizeof(std::uint16_t) + LoadAt<std::uint16_t>(keys, at);
  }
  const std::span<const std::byte> key =
      keys.subspan(at + sizeof(std::uint16_t), LoadAt<std::uint16_t>(keys, at));
  return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

}  // namespace forebay::catalog
