// The bytes of a segment file (docs/segment.md): layout, trailer, names. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/tier/extent_key.h"

namespace forebay::tier {

inline constexpr std::uint32_t kSegmentVersion = 1;

// What the manifest says of a segment; everything else follows from it.
struct SegmentShape {
  std::uint64_t image_bytes = 0;  // 1 to limits::kExtentBytesMax
  std::uint32_t piece_count = 0;  // at most limits::kSamplesPerExtentMax

  bool IsValid() const {
    return image_bytes > 0 && image_bytes <= limits::kExtentBytesMax &&
           piece_count <= limits::kSamplesPerExtentMax;
  }
  std::uint64_t trailer_offset() const { return Padded(image_bytes); }
  // Checksum table, then one block of footer.
  std::uint64_t trailer_bytes() const {
    return Padded(std::uint64_t{piece_count} * 8) + limits::kIoAlignmentBytes;
  }
  std::uint64_t file_bytes() const { return trailer_offset() + trailer_bytes(); }

  static std::uint64_t Padded(std::uint64_t bytes) {
    constexpr std::uint64_t kBlock = limits::kIoAlignmentBytes;
    return (bytes + kBlock - 1) / kBlock * kBlock;
  }
};

// Fills `trailer` (zeroed, shape.trailer_bytes() long) for an image of shape.image_bytes.
void EncodeTrailer(const ExtentKey& key, const SegmentShape& shape,
                   const ExtentChecksums& checksums, std::span<std::byte> trailer);
// The checksums of a trailer. kDataLoss where it is damaged or belongs to another extent,
// kFailedPrecondition where another version wrote it; messages say what does not match.
Result<ExtentChecksums> DecodeTrailer(const ExtentKey& key, const SegmentShape& shape,
                                      std::span<const std::byte> trailer);

// "<key>.seg", and the name under which it is written before it is published.
std::string SegmentName(const ExtentKey& key);
std::string SegmentTempName(const ExtentKey& key, std::uint64_t attempt);

inline constexpr std::string_view kManifestName = "manifest";
inline constexpr std::string_view kManifestTempName = "manifest.tmp";

// Whose file a name is. Only segments and temps are ever removed, so that a store pointed at
// the wrong directory does no harm.
enum class NameKind : std::uint8_t { kForeign, kManifest, kSegment, kTemp };
NameKind ClassifyName(std::string_view name);
// The attempt number of a temp segment's name, 0 for other names.
std::uint64_t TempAttempt(std::string_view name);

}  // namespace forebay::tier
