// Fuzz target: a segment's trailer, once as the fuzzer made it and once with its checksum
// corrected, with the shape and key that its own footer states; and names of files in a segment
// directory.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::tier {
namespace {

constexpr std::size_t kFooterBytes = limits::kIoAlignmentBytes;

struct Footer {
  ExtentKey key;
  SegmentShape shape;
};

// docs/segment.md: what the footer says, checked no further than the manifest would be.
std::optional<Footer> ReadFooter(std::span<const std::byte> trailer) {
  if (trailer.size() < kFooterBytes) return std::nullopt;
  ByteReader reader(trailer.last(kFooterBytes));
  Footer footer;
  reader.Take(12);  // magic, version
  footer.shape.piece_count = reader.ReadLe<std::uint32_t>();
  footer.key.dataset = reader.ReadLe<std::uint64_t>();
  footer.key.identity = reader.ReadLe<std::uint64_t>();
  footer.key.extent = ExtentId(reader.ReadLe<std::uint32_t>());
  reader.Take(4);
  footer.shape.image_bytes = reader.ReadLe<std::uint64_t>();
  // DecodeTrailer demands a valid shape: the manifest's parser refuses others before.
  if (!footer.shape.IsValid()) return std::nullopt;
  return footer;
}

void CheckTrailer(const Footer& footer, std::span<const std::byte> trailer) {
  const auto checksums = DecodeTrailer(footer.key, footer.shape, trailer);
  if (!checksums.has_value()) return;
  if (checksums->pieces.size() != footer.shape.piece_count) __builtin_trap();
  // A trailer that decodes must encode again, and then decode to the same checksums.
  std::vector<std::byte> encoded(footer.shape.trailer_bytes());
  EncodeTrailer(footer.key, footer.shape, *checksums, encoded);
  const auto again = DecodeTrailer(footer.key, footer.shape, encoded);
  if (!again.has_value() || again->image != checksums->image ||
      again->pieces != checksums->pieces) {
    __builtin_trap();
  }
}

void CheckName(std::string_view name) {
  const NameKind kind = ClassifyName(name);
  const std::uint64_t attempt = TempAttempt(name);
  // 42 characters of a key and ".seg"; a temporary name has at least ".0.tmp" behind the key.
  if (kind == NameKind::kSegment && (name.size() != 46 || attempt != 0)) __builtin_trap();
  if (kind == NameKind::kTemp && name != kManifestTempName && name.size() < 48) {
    __builtin_trap();
  }
}

}  // namespace
}  // namespace forebay::tier

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::tier;
  CheckName({reinterpret_cast<const char*>(data), size});
  const auto raw = std::as_bytes(std::span(data, size));
  std::vector<std::byte> trailer(raw.begin(), raw.end());
  const auto footer = ReadFooter(trailer);
  if (!footer.has_value()) return 0;
  CheckTrailer(*footer, trailer);
  const std::size_t summed_bytes = trailer.size() - sizeof(std::uint64_t);
  const std::uint64_t sum = forebay::Checksum(std::span(trailer).first(summed_bytes));
  std::memcpy(trailer.data() + summed_bytes, &sum, sizeof(sum));
  CheckTrailer(*footer, trailer);
  return 0;
}
