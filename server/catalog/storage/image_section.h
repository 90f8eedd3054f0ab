// What both kinds of catalog image (of packs, and of all other formats) have in common: a header
// with magic and version, sections with checksums, and tables of strings with an index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "proto/contract/result.h"
#include "server/catalog/storage/catalog_format.h"

namespace forebay::catalog {

// Returns a kDataLoss error that names the offset in the image.
Error DamagedImage(std::uint64_t offset, std::string_view reason);

// The values of an image's header that CheckImageHead compares.
struct ImageHead {
  std::string_view kind;       // "catalog", for messages
  bool has_magic = false;
  bool matches_hash = false;
  std::uint32_t version = 0, version_read = 0;  // the image's; the one that this build reads
  std::uint64_t image_bytes = 0;
};

// kDataLoss if the image is too short for a header. To be called before the header is read.
Status CheckHoldsHeader(std::span<const std::byte> image);
// kFailedPrecondition: another format version; the message names both. kDataLoss: anything else.
Status CheckImageHead(std::span<const std::byte> image, const ImageHead& head);

// Returns the bytes of a section. If `is_hashed` is false, its row must have the checksum 0.
// kDataLoss if the section lies outside the image or does not match its checksum.
Result<std::span<const std::byte>> SectionBytes(std::span<const std::byte> image,
                                                const SectionRow& row, std::string_view name,
                                                bool is_hashed = true);

// A table of strings: u16 length and bytes of each, one after another. The index has the u64 offset
// of every per_entry-th string. The spans are borrowed from the image.
struct IndexedStrings {
  std::span<const std::byte> index, strings;
  std::uint64_t count = 0;
  std::uint64_t per_entry = 1;

  std::uint64_t entries() const { return (count + per_entry - 1) / per_entry; }
  // Returns string `number` (< count). CheckStrings must have succeeded before.
  std::string_view At(std::uint64_t number) const;
};

struct StringLimits {
  std::string_view what;  // what a string is, for messages: "name"
  std::uint64_t index_offset = 0, strings_offset = 0;  // of the two sections in the image
  std::size_t bytes_min = 0, bytes_max = 0;            // of one string
};

// Succeeds if the index has the right size and leads to strings within the limits, and the last
// string ends the section. Error: kDataLoss.
Status CheckStrings(const IndexedStrings& table, const StringLimits& limits);

}  // namespace forebay::catalog
