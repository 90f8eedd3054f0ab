#include "trainer/exec/device_feed.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/exec/device.h"

namespace forebay::train {
namespace {

// A processor has one only.
c10::Stream StreamBeside(const torch::Device& device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  return device.is_cpu() ? streams.getStream(device) : streams.getStreamFromGlobalPool(device);
}

}  // namespace

DeviceFeed::DeviceFeed(const torch::Device& device, Print print)
    : device_(device), print_(std::move(print)), stream_(StreamBeside(device)) {}

DeviceFeed::~DeviceFeed() {
  for (const Known& known : known_) Forget(known);
}

void DeviceFeed::Run(const FeedBatch& batch, const std::function<void()>& make) {
  const std::lock_guard lock(mutex_);
  Know(batch.input.mapping);
  Know(batch.target.mapping);
  const c10::StreamGuard guard(stream_);
  make();
  stream_.synchronize();
}

void DeviceFeed::Adopt(const torch::Tensor& tensor) const {
  if (!tensor.defined() || tensor.is_cpu()) return;
  tensor.record_stream(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void DeviceFeed::Know(const FeedMapping& mapping) {
  if (mapping.bytes.empty()) return;
  auto known = std::ranges::find(known_, mapping.hold, &Known::hold);
  if (known == known_.end()) {
    // A connection that nothing else holds is gone.
    std::erase_if(known_, [](const Known& other) {
      const bool unused = other.hold.use_count() == 1;
      if (unused) Forget(other);
      return unused;
    });
    known = known_.insert(known_.end(), {.hold = mapping.hold});
  }
  const auto* const begin = mapping.bytes.data();
  const auto begins = [](std::span<const std::byte> bytes) { return bytes.data(); };
  if (std::ranges::find(known->mappings, begin, begins) != known->mappings.end()) return;
  known->mappings.push_back(mapping.bytes);
  const Status registered = RegisterForCopies(mapping.bytes);
  if (registered.has_value()) {
    known->registered.push_back(mapping.bytes);
  } else if (print_ && !std::exchange(was_refused_, true)) {
    print_(fmt::format("batches are copied to the GPU from pageable memory: {}",
                       registered.error().ToString()));
  }
}

void DeviceFeed::Forget(const Known& known) {
  std::ranges::for_each(known.registered, UnregisterForCopies);
}

}  // namespace forebay::train
