// The catalog image as it lies on disk and in memory: constants and rows. docs/catalog.md describes
// the same layout in words. A change of the layout needs a new kCatalogVersion and a line there.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/contract/align_up.h"
#include "proto/contract/result.h"
#include "proto/contract/wire_layout.h"
#include "server/catalog/catalog.h"

namespace forebay::catalog {

inline constexpr std::uint64_t kCatalogMagic = 0x3154414359424546ULL;  // "FEBYCAT1"
inline constexpr std::size_t kHeaderBytes = 512;
inline constexpr std::size_t kSectionAlignmentBytes = 8;
inline constexpr std::size_t kObjectRowBytes = 14;   // u48 bytes, i64 mtime_ns
inline constexpr std::uint64_t kNamesPerIndexEntry = 16;  // objects between two index entries
inline constexpr std::uint64_t kKeysPerIndexEntry = 16;   // samples between two index entries
inline constexpr std::uint32_t kAbsentField = 0xFFFF'FFFF;  // offset and length of such a field
inline constexpr std::size_t kMemberFieldBytes = 8;  // u32 offset, u32 length
inline constexpr std::size_t kFileEntryBytes = 8;    // u32 offset, u32 constant

enum class SectionKind : std::uint32_t {
  kMeta = 0,       // name, fields, names of constants
  kParts = 1,      // PartRow each
  kObjects = 2,    // object rows
  kNameIndex = 3,  // u64 offset into kNames of every 16th object's path
  kNames = 4,      // u16 length and bytes of each object's path
  kExtents = 5,    // ExtentRow each
  kPages = 6,      // sample and key pages, verified one by one at first use
};
inline constexpr std::size_t kSectionCount = 7;

struct SectionRow {
  std::uint64_t offset = 0;  // from the start of the image; a multiple of 8
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;    // XXH3-64; 0 for kPages
};

struct HeaderRow {
  std::uint64_t magic = kCatalogMagic;
  std::uint32_t version = kCatalogVersion;
  std::uint32_t format = 0;        // Format
  std::uint64_t image_bytes = 0;   // of the whole image
  std::uint64_t sample_count = 0;
  std::uint64_t total_bytes = 0;   // over all extents
  std::uint64_t fingerprint = 0;
  std::uint32_t part_count = 0;
  std::uint32_t object_count = 0;
  std::uint32_t extent_count = 0;
  std::uint32_t field_count = 0;
  SectionRow sections[kSectionCount];
  std::uint8_t reserved[272] = {};  // zero
  std::uint64_t hash = 0;           // XXH3-64 of the 504 bytes before it
};

enum class PartKind : std::uint32_t {
  kFixed = 1,    // records of one size in one object: locations are computed
  kFiles = 2,    // sample i is the whole object i, with one constant
  kMembers = 3,  // fields are byte ranges listed in sample pages
};

struct PartRow {
  std::uint32_t kind = 0;  // PartKind
  std::uint32_t first_extent = 0;
  std::uint32_t extent_count = 0;
  std::uint32_t first_object = 0;
  std::uint32_t object_count = 0;
  std::uint32_t entry_bytes = 0;       // of one sample in a page; 0 for kFixed
  std::uint64_t data_offset = 0;       // kFixed: where record 0 starts in the object
  std::uint64_t record_bytes = 0;      // kFixed
  std::uint32_t records_per_extent = 0;  // kFixed: 1 where a record spans extents
  std::uint32_t extents_per_record = 0;  // kFixed: 1 unless a record spans extents
  std::uint64_t chain_extent_bytes = 0;  // kFixed: of all extents of a spanning record but the last
  std::uint64_t reserved = 0;
};

struct ExtentRow {
  std::uint32_t part = 0;
  std::uint32_t first_object = 0;
  std::uint32_t object_count = 1;
  std::uint32_t sample_count = 0;     // samples with any byte here
  std::uint64_t object_offset = 0;
  std::uint64_t first_sample = 0;
  std::uint32_t bytes = 0;
  std::uint32_t starting_count = 0;   // samples whose first byte is here: entries of the page;
                                      // 0: continues the sample of the extent before
  std::uint64_t page_offset = 0;      // in kPages: the sample page, the key page after it
  std::uint64_t entries_hash = 0;     // XXH3-64 of the sample page
  std::uint64_t keys_hash = 0;        // XXH3-64 of the key page

  bool operator==(const ExtentRow&) const = default;
  bool continues() const { return starting_count == 0; }
};

static_assert(sizeof(HeaderRow) == kHeaderBytes && std::is_trivially_copyable_v<HeaderRow>);
static_assert(sizeof(PartRow) == 64 && std::is_trivially_copyable_v<PartRow>);
static_assert(sizeof(ExtentRow) == 64 && std::is_trivially_copyable_v<ExtentRow>);

// Loads a little-endian integer or row at `offset`, which the caller has checked.
template <typename T>
T LoadAt(std::span<const std::byte> bytes, std::size_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.subspan(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

// The bytes of a row, as stored.
template <typename T>
std::span<const std::byte> RowBytes(const T& row) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&row, 1));
}

// Appends a little-endian integer.
template <typename T>
void AppendLe(std::vector<std::byte>& bytes, T value) {
  static_assert(std::is_integral_v<T>);
  const std::span<const std::byte> raw = RowBytes(value);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// Rounds up to kSectionAlignmentBytes.
constexpr std::uint64_t AlignSection(std::uint64_t offset) {
  return AlignUp(offset, kSectionAlignmentBytes);
}

// How a part of `sample_count` records of `record_bytes` is cut into extents of at most
// `extent_bytes`: fills records_per_extent, extents_per_record, chain_extent_bytes and
// extent_count. kResourceExhausted beyond a published limit. Requires sample_count, record_bytes,
// extent_bytes > 0.
Status CutFixedPart(std::uint64_t sample_count, std::uint64_t extent_bytes, PartRow& part);

// Computes extent `index` (< part.extent_count) of the fixed part with number `part_number`.
ExtentRow FixedExtent(const PartRow& part, std::uint32_t part_number,
                      std::uint64_t sample_count, std::uint32_t index);

// The fingerprint of a catalog with this header: a hash of format, counts and the hashes of all
// tables. It covers the pages too, because the extent table holds their hashes.
std::uint64_t FingerprintOf(const HeaderRow& header);

}  // namespace forebay::catalog
