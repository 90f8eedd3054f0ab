// Each slice owns a Pin, which gRPC gives back when the bytes were written to the socket or the
// connection has ended.
#include "server/peer/slice_pins.h"

#include <utility>

namespace forebay::peer {

struct SlicePins::Pin {
  std::shared_ptr<SlicePins> pins;
  std::shared_ptr<const void> owner;
};

grpc::Slice SlicePins::Make(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  ++count_;
  auto pin = std::make_unique<Pin>(Pin{.pins = shared_from_this(), .owner = std::move(owner)});
  // gRPC's slices are not const, but it only reads them.
  void* const begin = const_cast<std::byte*>(bytes.data());  // NOLINT
  return grpc::Slice(begin, bytes.size(), &SlicePins::Release, pin.release());
}

std::shared_ptr<const void> SlicePins::Hold(std::shared_ptr<const void> owner) {
  ++count_;
  auto pin = std::make_unique<Pin>(Pin{.pins = shared_from_this(), .owner = std::move(owner)});
  return {pin.release(), &SlicePins::Release};
}

void SlicePins::Release(void* raw) {
  const std::unique_ptr<Pin> pin(static_cast<Pin*>(raw));
  // Before it is counted, so that nothing is in use once the count is 0.
  pin->owner.reset();
  if (--pin->pins->count_ == 0) pin->pins->count_.notify_all();
}

void SlicePins::AwaitNone() const {
  for (std::size_t left = count_; left > 0; left = count_) count_.wait(left);
}

}  // namespace forebay::peer
