// ImageVerifier: compares an image, which comes in parts, with its checksums. Used by Scrubber, so
// that an image on SSD need not be in memory as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/checksum.h"
#include "proto/contract/result.h"
#include "server/tier/extent_key.h"

namespace forebay::tier {

// Takes an image in consecutive parts, from its first byte to its last. Reports a wrong piece as
// soon as its last byte was seen. Borrows checksums and pieces. Not thread-safe.
class ImageVerifier {
 public:
  // Checks that pieces and checksums belong together; call it before the constructor. kDataLoss:
  // they do not. `pieces` must be in the order of the image. They may be empty: then only the
  // checksum of the whole image is compared.
  static Status CheckShape(const ExtentKey& key, std::uint64_t image_bytes,
                           const ExtentChecksums& checksums,
                           std::span<const catalog::Range> pieces);

  ImageVerifier(const ExtentKey& key, std::uint64_t image_bytes,
                const ExtentChecksums& checksums, std::span<const catalog::Range> pieces);

  // The next part of the image. kDataLoss: a piece that ends in it does not match its checksum.
  Status Feed(std::span<const std::byte> part);
  // Call after the last part. kDataLoss: the image as a whole does not match its checksum.
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
  std::size_t next_piece_ = 0;  // the piece that is being summed, or the next one
};

}  // namespace forebay::tier
