// A trailer is: the checksums of the pieces, zeros up to the next block, then the footer in the
// last block, whose last 8 bytes are a checksum over all of the trailer before them. The footer
// repeats the key, so that a file under a wrong name is found out.
#include "server/tier/ssd/segment_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kFooterMagic = 0x31544D47'45534246;  // "FBSEGMT1" as bytes
constexpr std::uint64_t kFooterBytes = limits::kIoAlignmentBytes;
constexpr std::uint64_t kSumBytes = 8;  // the trailer's own checksum, at its end
constexpr std::string_view kSegmentSuffix = ".seg";
constexpr std::string_view kTempSuffix = ".tmp";

Error Damaged(const ExtentKey& key, const char* what) {
  return Error(ErrorCode::kDataLoss, "segment " + KeyText(key) + ": " + what);
}

// Whether a text has the form of KeyText: 16, 8 and 16 hexadecimal digits, joined by '-'.
// Names are compared strictly: a store removes files that it takes for its own, so it must not take
// anybody else's.
bool IsKeyText(std::string_view text) {
  if (text.size() != 42) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (i == 16 || i == 25 ? c != '-' : !is_hex) return false;
  }
  return true;
}

}  // namespace

void EncodeTrailer(const ExtentKey& key, const SegmentShape& shape,
                   const ExtentChecksums& checksums, std::span<std::byte> trailer) {
  // The caller has checked both (Put).
  FOREBAY_CHECK(shape.IsValid() && checksums.pieces.size() == shape.piece_count);
  FOREBAY_CHECK(trailer.size() == shape.trailer_bytes());
  ByteWriter table;
  for (const std::uint64_t sum : checksums.pieces) table.Le(sum);
  // The bytes behind the table stay zero: the caller's buffer is zeroed (AlignedBuffer), and the
  // checksum covers it too.
  std::ranges::copy(table.bytes(), trailer.begin());

  ByteWriter footer;
  footer.Le(kFooterMagic);
  footer.Le(kSegmentVersion);
  footer.Le(shape.piece_count);
  footer.Le(key.dataset);
  footer.Le(key.identity);
  footer.Le(key.extent.value());
  footer.Le(std::uint32_t{0});  // reserved; aligns the next field
  footer.Le(shape.image_bytes);
  footer.Le(checksums.image);
  std::ranges::copy(footer.bytes(), trailer.last(kFooterBytes).begin());

  ByteWriter sum;
  sum.Le(Checksum(trailer.first(trailer.size() - kSumBytes)));
  std::ranges::copy(sum.bytes(), trailer.last(kSumBytes).begin());
}

Result<ExtentChecksums> DecodeTrailer(const ExtentKey& key, const SegmentShape& shape,
                                      std::span<const std::byte> trailer) {
  FOREBAY_CHECK(shape.IsValid());
  // The length comes from the manifest and the bytes from the file, so they may disagree.
  if (trailer.size() != shape.trailer_bytes()) {
    return Damaged(key, "its trailer does not have the length that the manifest implies");
  }
  // The checksum comes first: no field is looked at in bytes that may be damaged.
  ByteReader sum(trailer.last(kSumBytes));
  if (sum.ReadLe<std::uint64_t>() != Checksum(trailer.first(trailer.size() - kSumBytes))) {
    return Damaged(key, "its checksum table or footer is damaged");
  }
  ByteReader footer(trailer.last(kFooterBytes));
  if (footer.ReadLe<std::uint64_t>() != kFooterMagic) return Damaged(key, "it has no footer");
  if (const auto version = footer.ReadLe<std::uint32_t>(); version != kSegmentVersion) {
    return Error(ErrorCode::kFailedPrecondition,
                 "segment " + KeyText(key) + " has format version " + std::to_string(version) +
                     ", this daemon reads " + std::to_string(kSegmentVersion));
  }
  const auto piece_count = footer.ReadLe<std::uint32_t>();
  ExtentKey found;
  found.dataset = footer.ReadLe<std::uint64_t>();
  found.identity = footer.ReadLe<std::uint64_t>();
  found.extent = ExtentId(footer.ReadLe<std::uint32_t>());
  footer.ReadLe<std::uint32_t>();
  const auto image_bytes = footer.ReadLe<std::uint64_t>();
  ExtentChecksums checksums;
  checksums.image = footer.ReadLe<std::uint64_t>();
  // The checksum was right, so these are not damage of the device but a file under a wrong name, or
  // a manifest that belongs to other files.
  if (found != key) return Damaged(key, "the file holds another extent");
  if (piece_count != shape.piece_count || image_bytes != shape.image_bytes) {
    return Damaged(key, "its footer and the manifest disagree on its sizes");
  }
  ByteReader table(trailer);
  // Compared with the manifest's count above, so a forged number allocates nothing.
  checksums.pieces.reserve(piece_count);
  for (std::uint32_t i = 0; i < piece_count; ++i) {
    checksums.pieces.push_back(table.ReadLe<std::uint64_t>());
  }
  FOREBAY_CHECK(table.ok() && footer.ok());
  return checksums;
}

std::string SegmentName(const ExtentKey& key) {
  return KeyText(key) + std::string(kSegmentSuffix);
}

std::string SegmentTempName(const ExtentKey& key, std::uint64_t attempt) {
  return KeyText(key) + "." + std::to_string(attempt) + std::string(kTempSuffix);
}

NameKind ClassifyName(std::string_view name) {
  if (name == kManifestName) return NameKind::kManifest;
  if (name == kManifestTempName) return NameKind::kTemp;
  // substr stops at the end of a shorter name, which IsKeyText then refuses.
  if (!IsKeyText(name.substr(0, 42))) return NameKind::kForeign;
  // After the key: ".seg", or ".<digits>.tmp". Anything else belongs to somebody else.
  std::string_view rest = name.substr(42);
  if (rest == kSegmentSuffix) return NameKind::kSegment;
  if (rest.size() <= 1 + kTempSuffix.size() || rest.front() != '.' ||
      !rest.ends_with(kTempSuffix)) {
    return NameKind::kForeign;
  }
  rest = rest.substr(1, rest.size() - 1 - kTempSuffix.size());
  const bool is_number =
      std::ranges::all_of(rest, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? NameKind::kTemp : NameKind::kForeign;
}

std::uint64_t TempAttempt(std::string_view name) {
  // 43 characters stand before the number: those of the key and a point.
  std::uint64_t attempt = 0;
  if (name.size() > 43) {
    // A number that does not fit leaves 0. The store never writes such a name.
    std::from_chars(name.data() + 43, name.data() + name.size(), attempt);
  }
  return attempt;
}

}  // namespace forebay::tier
