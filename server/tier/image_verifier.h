// ImageVerifier: compares an image that comes in parts with its checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/checksum.h"
#include "proto/contract/result.h"
#include "server/tier/extent_key.h"

namespace forebay::tier {

// Fed an image from its first byte to its last; says which piece is wrong as soon as the piece
// has passed by. Borrows checksums and pieces. Not thread-safe.
class ImageVerifier {
 public:
  // kDataLoss where pieces and checksums do not belong together. `pieces` may be empty: then
  // only the image's own checksum is compared. They must be in image order.
  static Status CheckShape(const ExtentKey& key, std::uint64_t image_bytes,
                           const ExtentChecksums& checksums,
                           std::span<const catalog::Range> pieces);

  ImageVerifier(const ExtentKey& key, std::uint64_t image_bytes,
                const ExtentChecksums& checksums, std::span<const catalog::Range> pieces);

  Status Feed(std::span<const std::byte> part);
  // After the last byte.
  Status Finish();

 private:
  Status EndPiece();

  const ExtentKey key_;
  const std::uint64_t image_bytes_;
  const ExtentChecksums& checksums_;
  const std::span<const catalog::Range> pieces_;
  ChecksumStream image_;
  ChecksumStream piece_;
  std::uint64_t offset_ = 0;    // of the next byte in the image
  std::size_t next_piece_ = 0;  // the piece that is being, or will next be, summed
};

}  // namespace forebay::tier
