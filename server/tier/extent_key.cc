// Keys and checksums are stored in files and compared between nodes, so the order and width of what
// is hashed here is a format: never change it.
#include "server/tier/extent_key.h"

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "server/catalog/dataset_source.h"

namespace forebay::tier {
namespace {

void AppendHex(std::uint64_t value, int digits, std::string& text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += kHex[(value >> shift) & 0xF];
}

ExtentKey NumberedKey(const catalog::Catalog& catalog, const catalog::ExtentInfo& info,
                      ExtentId number) {
  std::vector<catalog::ObjectInfo> objects;
  objects.reserve(info.object_count);
  // An extent of an image folder holds many objects, and a change of any of them changes the bytes.
  for (std::uint32_t i = 0; i < info.object_count; ++i) {
    objects.push_back(catalog.object(ObjectId(info.first_object.value() + i)));
  }
  return {DatasetHash(catalog.name()), number, ExtentIdentity(info, objects)};
}

}  // namespace

std::string KeyText(const ExtentKey& key) {
  std::string text;
  // 16, 8 and 16 digits and two hyphens. Segment files are named so (segment_format.h); lower case,
  // because some file systems fold case.
  text.reserve(42);
  AppendHex(key.dataset, 16, text);
  text += '-';
  AppendHex(key.extent.value(), 8, text);
  text += '-';
  AppendHex(key.identity, 16, text);
  return text;
}

std::uint64_t DatasetHash(std::string_view name) {
  // The name and not the catalog's fingerprint: a data set that is catalogued again finds those of
  // its segments whose extents are unchanged (ExtentIdentity).
  return Checksum(std::as_bytes(std::span(name.data(), name.size())));
}

std::uint64_t ExtentIdentity(const catalog::ExtentInfo& extent,
                             std::span<const catalog::ObjectInfo> objects) {
  // Covers what decides which bytes the extent has: its range, and the state of each object. The
  // extent's number is not covered, because it is a part of the key by itself.
  ByteWriter words;
  words.Le(extent.part);
  words.Le(extent.object_offset);
  words.Le(extent.bytes);
  words.Le(extent.sample_count);
  words.Le(std::uint64_t{objects.size()});
  for (const catalog::ObjectInfo& object : objects) {
    words.String(object.path);
    words.Le(object.bytes);
    words.Le(static_cast<std::uint64_t>(object.mtime_ns));
  }
  return Checksum(words.bytes());
}

ExtentKey KeyOf(const catalog::Catalog& catalog, ExtentId extent) {
  ExtentKey key = NumberedKey(catalog, catalog.extent(extent), extent);
  if (!catalog::BuildsFromMetadata(catalog.format())) {
    const ExtentId first = catalog::FirstExtentOf(catalog, catalog.extent(extent).first_object);
    key.extent = ExtentId(extent.value() - first.value());
  }
  return key;
}

std::vector<ExtentKey> KeysOf(const catalog::Catalog& catalog) {
  const bool is_scanned = !catalog::BuildsFromMetadata(catalog.format());
  std::vector<ExtentKey> keys;
  keys.reserve(catalog.extent_count());
  std::uint32_t first = 0;  // the first extent of the current object
  ObjectId object;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const catalog::ExtentInfo info = catalog.extent(ExtentId(i));
    if (i == 0 || (is_scanned && info.first_object != object)) {
      first = is_scanned ? i : 0;
      object = info.first_object;
    }
    keys.push_back(NumberedKey(catalog, info, ExtentId(i - first)));
  }
  return keys;
}

ChecksumIdentity PieceIdentity(const ExtentKey& key, std::uint32_t offset,
                               std::uint64_t length) {
  // Offsets have 32 bits (limits.h), so extent and offset share one word without collisions.
  const std::uint64_t place = (std::uint64_t{key.extent.value()} << 32) | offset;
  return {key.dataset, key.identity, place, length};
}

ExtentChecksums ComputeChecksums(const ExtentKey& key, std::span<const std::byte> image,
                                 std::span<const catalog::Range> pieces) {
  ExtentChecksums sums;
  // The image has a checksum of its own beside those of its pieces: bytes between the pieces are
  // covered too, and a whole extent can be verified without its catalog.
  sums.image = Checksum(PieceIdentity(key, 0, image.size()), image);
  sums.pieces.reserve(pieces.size());
  for (const catalog::Range& piece : pieces) {
    // Pieces come from a verified catalog, or from the scan that has just cut the extent.
    FOREBAY_CHECK(piece.offset <= image.size() && piece.length <= image.size() - piece.offset);
    sums.pieces.push_back(Checksum(PieceIdentity(key, piece.offset, piece.length),
                                   image.subspan(piece.offset, piece.length)));
  }
  return sums;
}

Status VerifyPiece(const ExtentKey& key, const catalog::Range& piece, std::uint64_t expected,
                   std::span<const std::byte> bytes) {
  // Called once per sample, so the message is built only after a failure.
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::kDataLoss, "piece of " + std::to_string(piece.length) +
                                           " bytes at " + std::to_string(piece.offset) +
                                           " of extent " + KeyText(key) + " " + why);
  };
  // The length is part of what is hashed, so bytes of another length could never match. The message
  // is better than that of a checksum.
  if (bytes.size() != piece.length) {
    return fail("was read as " + std::to_string(bytes.size()) + " bytes");
  }
  if (Checksum(PieceIdentity(key, piece.offset, piece.length), bytes) != expected) {
    return fail("does not match its checksum");
  }
  return {};
}

}  // namespace forebay::tier
