// What the images of all catalogs have in common: a header that says what they are, sections with
// checksums, and tables of strings with an index. Checks of both, and look-ups in the latter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "proto/contract/result.h"
#include "server/catalog/storage/catalog_format.h"

namespace forebay::catalog {

// kDataLoss, with the offset in the image.
Error DamagedImage(std::uint64_t offset, std::string_view reason);

// What a header says of itself, and what was found of it.
struct ImageHead {
  std::string_view kind;       // "catalog", for messages
  bool has_magic = false;
  bool matches_hash = false;
  std::uint32_t version = 0, version_read = 0;  // of the image; of this build
  std::uint64_t image_bytes = 0;
};

// An image of fewer bytes than a header's: kDataLoss. To be called before the header is read.
Status CheckHoldsHeader(std::span<const std::byte> image);
// kFailedPrecondition: another format version (names both). kDataLoss: anything else.
Status CheckImageHead(std::span<const std::byte> image, const ImageHead& head);

// The bytes of a section. Without `is_hashed` its row has no checksum (0). kDataLoss.
Result<std::span<const std::byte>> SectionBytes(std::span<const std::byte> image,
                                                const SectionRow& row, std::string_view name,
                                                bool is_hashed = true);

// Strings as u16 length and bytes, one after the other; of each so many, a u64 in the index says
// where it begins. Borrowed.
struct IndexedStrings {
  std::span<const std::byte> index, strings;
  std::uint64_t count = 0;
  std::uint64_t per_entry = 1;

  std::uint64_t entries() const { return (count + per_entry - 1) / per_entry; }
  // Of strings that CheckStrings has passed; `number` < count.
  std::string_view At(std::uint64_t number) const;
};

struct StringLimits {
  std::string_view what;  // "name", for messages
  std::uint64_t index_offset = 0, strings_offset = 0;  // of the sections in the image
  std::size_t bytes_min = 0, bytes_max = 0;            // of a string
};

// kDataLoss unless the index has the right size and leads to strings within the limits, of which
// the last one ends the section.
Status CheckStrings(const IndexedStrings& table, const StringLimits& limits);

}  // namespace forebay::catalog
