// The messages of an answer to a request for an extent: the description of the image, then the
// image in chunks, which are sent from where they lie and received where they are wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/result.h"
#include "server/peer/slice_pins.h"

namespace forebay::peer {

struct ExtentHead {
  std::uint64_t image_bytes = 0;  // 1 to limits::kExtentBytesMax
  std::uint64_t checksum = 0;     // of the image (tier::ExtentChecksums::image)
  bool is_packed = false;
};

// Not thread-safe.
class ExtentSender {
 public:
  // `image` has head.image_bytes bytes, which `owner` keeps in place.
  ExtentSender(const ExtentHead& head, std::span<const std::byte> image,
               std::shared_ptr<const void> owner, std::shared_ptr<SlicePins> pins);
  // Makes the next message. Returns true if it is the last one; then there is no further call.
  bool Next(grpc::ByteBuffer& message);

 private:
  const ExtentHead head_;
  const std::span<const std::byte> image_;
  const std::shared_ptr<const void> owner_;
  const std::shared_ptr<SlicePins> pins_;
  bool has_sent_head_ = false;
  std::size_t sent_ = 0;
};

// Not thread-safe.
class ExtentReceiver {
 public:
  // Reads the first message. kInternal: it is malformed, or its values are out of bounds.
  static Result<ExtentHead> TakeHead(grpc::ByteBuffer& message);

  // Names the memory for the image, of as many bytes as the head says. Before the first Take.
  void SetImage(std::span<std::byte> image) { image_ = image; }
  // Reads the next chunk. kInternal: it is malformed, or there is more than the image.
  Status Take(grpc::ByteBuffer& message);
  // To be called after the last chunk. kInternal: the image is not complete.
  Status Finish() const;

 private:
  std::span<std::byte> image_;
  std::size_t received_ = 0;
};

}  // namespace forebay::peer
