// The bytes of a segment file (docs/segment.md): layout, trailer and file names. Pure functions;
// SegmentStore does the I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/contract/align_up.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/tier/extent_key.h"

namespace forebay::tier {

inline constexpr std::uint32_t kSegmentVersion = 1;

// The sizes of a segment as its manifest record has them. The layout of the file follows from them.
struct SegmentShape {
  std::uint64_t image_bytes = 0;  // 1 to limits::kExtentBytesMax
  std::uint32_t piece_count = 0;  // at most limits::kSamplesPerExtentMax

  bool IsValid() const {
    return image_bytes > 0 && image_bytes <= limits::kExtentBytesMax &&
           piece_count <= limits::kSamplesPerExtentMax;
  }
  std::uint64_t trailer_offset() const { return Padded(image_bytes); }
  // The checksum table, padded, then one block for the footer.
  std::uint64_t trailer_bytes() const {
    return Padded(std::uint64_t{piece_count} * 8) + limits::kIoAlignmentBytes;
  }
  std::uint64_t file_bytes() const { return trailer_offset() + trailer_bytes(); }

  static std::uint64_t Padded(std::uint64_t bytes) {
    return AlignUp(bytes, limits::kIoAlignmentBytes);
  }
};

// Writes the trailer of an image. `trailer` must be zeroed and shape.trailer_bytes() long.
void EncodeTrailer(const ExtentKey& key, const SegmentShape& shape,
                   const ExtentChecksums& checksums, std::span<std::byte> trailer);
// Checks a trailer and returns its checksums. kDataLoss: it is damaged, or belongs to another
// extent; kFailedPrecondition: another format version wrote it. Messages name the extent and say
// what does not match.
Result<ExtentChecksums> DecodeTrailer(const ExtentKey& key, const SegmentShape& shape,
                                      std::span<const std::byte> trailer);

// "<key>.seg", the name of a published segment, and "<key>.<attempt>.tmp", the name under which it
// is written before.
std::string SegmentName(const ExtentKey& key);
std::string SegmentTempName(const ExtentKey& key, std::uint64_t attempt);

inline constexpr std::string_view kManifestName = "manifest";
inline constexpr std::string_view kManifestTempName = "manifest.tmp";

// The kind of a file, by its name. A store removes only segments and temporary files, so that it
// does no harm if it is opened in the wrong directory.
enum class NameKind : std::uint8_t { kForeign, kManifest, kSegment, kTemp };
NameKind ClassifyName(std::string_view name);
// The attempt number in the name of a temporary segment; 0 for other names.
std::uint64_t TempAttempt(std::string_view name);

}  // namespace forebay::tier
