// Checks of headers, sections and tables of strings, for image_checker.cc and
// pack_image_checker.cc. All lengths and offsets come from the image, so each is compared with what
// is left before it is used; the comparisons subtract and never add, so that they cannot wrap.
#include "server/catalog/storage/image_section.h"

#include <string>

#include "proto/contract/checksum.h"

namespace forebay::catalog {

Error DamagedImage(std::uint64_t offset, std::string_view reason) {
  return Error(ErrorCode::kDataLoss,
               "catalog at offset " + std::to_string(offset) + ": " + std::string(reason));
}

Status CheckHoldsHeader(std::span<const std::byte> image) {
  if (image.size() >= kHeaderBytes) return {};
  return DamagedImage(image.size(), "truncated: the header has " + std::to_string(kHeaderBytes) +
                                        " bytes");
}

Status CheckImageHead(std::span<const std::byte> image, const ImageHead& head) {
  const std::string kind(head.kind);
  if (!head.has_magic) return DamagedImage(0, "not a Forebay " + kind + " (wrong magic)");
  // The hash comes first, so that a flipped bit in the version reads as damage.
  if (!head.matches_hash) return DamagedImage(0, "header does not match its checksum");
  if (head.version != head.version_read) {
    return Error(ErrorCode::kFailedPrecondition,
                 kind + " has format version " + std::to_string(head.version) +
                     ", this build reads " + std::to_string(head.version_read) +
                     ": build the catalog again");
  }
  if (head.image_bytes != image.size()) {
    return DamagedImage(image.size(), "image has " + std::to_string(image.size()) +
                                          " bytes, its header says " +
                                          std::to_string(head.image_bytes));
  }
  return {};
}

Result<std::span<const std::byte>> SectionBytes(std::span<const std::byte> image,
                                                const SectionRow& row, std::string_view name,
                                                bool is_hashed) {
  const std::string section = "section '" + std::string(name) + "' ";
  // The writer aligns every section, so an unaligned one is damage.
  // Sections may overlap each other. A forged image gains nothing by it: every table is read only,
  // and is checked for itself.
  if (row.offset < kHeaderBytes || row.offset % kSectionAlignmentBytes != 0 ||
      row.offset > image.size() || row.bytes > image.size() - row.offset) {
    return DamagedImage(row.offset, section + "lies outside the image");
  }
  const std::span<const std::byte> bytes = image.subspan(row.offset, row.bytes);
  // A hash of 0 where none belongs keeps the image canonical: equal catalogs have equal bytes.
  if (is_hashed ? Checksum(bytes) != row.hash : row.hash != 0) {
    return DamagedImage(row.offset, section + "does not match its checksum");
  }
  return bytes;
}

std::string_view IndexedStrings::At(std::uint64_t number) const {
  // At most per_entry - 1 strings are skipped, so a look-up takes a bounded number of steps.
  const std::uint64_t entry = number / per_entry;
  auto at = LoadAt<std::uint64_t>(index, entry * sizeof(std::uint64_t));
  for (std::uint64_t i = entry * per_entry; i < number; ++i) {
    at += sizeof(std::uint16_t) + LoadAt<std::uint16_t>(strings, at);
  }
  const std::span<const std::byte> found =
      strings.subspan(at + sizeof(std::uint16_t), LoadAt<std::uint16_t>(strings, at));
  return {reinterpret_cast<const char*>(found.data()), found.size()};
}

// Walks over all strings once. After this, At() may follow index and lengths without checks.
Status CheckStrings(const IndexedStrings& table, const StringLimits& limits) {
  const std::string what(limits.what);
  if (table.index.size() != table.entries() * sizeof(std::uint64_t)) {
    return DamagedImage(limits.index_offset, "the " + what + " index has the wrong size");
  }
  std::uint64_t offset = 0;
  const std::uint64_t size = table.strings.size();
  for (std::uint64_t i = 0; i < table.count; ++i) {
    // The index must agree with the place where walking over the strings arrives.
    const std::uint64_t entry = i / table.per_entry * sizeof(std::uint64_t);
    if (i % table.per_entry == 0 && LoadAt<std::uint64_t>(table.index, entry) != offset) {
      return DamagedImage(limits.index_offset + entry, "the " + what + " index is wrong");
    }
    if (size - offset < sizeof(std::uint16_t)) {
      return DamagedImage(limits.strings_offset + offset, "the " + what + "s end too early");
    }
    const auto length = LoadAt<std::uint16_t>(table.strings, offset);
    offset += sizeof(std::uint16_t);
    if (length < limits.bytes_min || length > limits.bytes_max || length > size - offset) {
      return DamagedImage(limits.strings_offset + offset,
                          "a " + what + " has an impossible length");
    }
    offset += length;
  }
  // Bytes that no string covers would let two images of one catalog differ.
  if (offset != size) {
    return DamagedImage(limits.strings_offset + offset, "bytes follow the last " + what);
  }
  return {};
}

}  // namespace forebay::catalog
