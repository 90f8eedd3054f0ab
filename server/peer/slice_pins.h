// SlicePins: lets messages refer to memory of this process without a copy. Each slice keeps its
// memory in place, and the owner of the memory can wait until gRPC has let go of all slices, and a
// PayloadCarrier of all that it sends.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include <grpcpp/support/slice.h>

namespace forebay::peer {

// Thread-safe.
class SlicePins : public std::enable_shared_from_this<SlicePins> {
 public:
  // Returns a slice of `bytes`. `owner` keeps them in place until gRPC needs the slice no more.
  grpc::Slice Make(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  // Keeps `owner` until the returned pointer and its copies are gone, and counts it like a slice.
  std::shared_ptr<const void> Hold(std::shared_ptr<const void> owner);
  // Waits until there are no slices and nothing is held. Connections that were given slices must be
  // closed.
  void AwaitNone() const;

 private:
  struct Pin;
  static void Release(void* pin);

  std::atomic<std::size_t> count_ = 0;
};

}  // namespace forebay::peer
