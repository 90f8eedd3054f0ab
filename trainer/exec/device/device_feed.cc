// Runs the conversion of a batch on a stream beside the computation, and returns when it is done.
// Shared memory that batches lie in is registered with CUDA, once per mapping, because copies from
// unregistered memory go through a buffer of the driver and block.
#include "trainer/exec/device/device_feed.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/exec/device/device.h"

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
  // The reading thread and, where nobody reads ahead, the step's thread come here.
  const MutexLock lock(mutex_);
  const c10::StreamGuard guard(stream_);  // and the thread's device, also for what is registered
  Know(batch.input.mapping);
  Know(batch.target.mapping);
  make();
  stream_.synchronize();
}

void DeviceFeed::Adopt(const torch::Tensor& tensor) const {
  if (!tensor.defined() || tensor.is_cpu()) return;
  // LibTorch's allocator would otherwise reuse the memory when the feed's stream is done with it.
  tensor.record_stream(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

// Registers a mapping that is not known yet. Mappings are few: one for each region of the daemon.
void DeviceFeed::Know(const FeedMapping& mapping) {
  if (mapping.bytes.empty()) return;
  const auto begins = [](const Known& known) { return known.mapping.bytes.data(); };
  if (std::ranges::find(known_, mapping.bytes.data(), begins) != known_.end()) return;
  // What nothing else holds is of a connection that is gone.
  std::erase_if(known_, [](const Known& known) {
    const bool unused = known.mapping.hold.use_count() == 1;
    if (unused) Forget(known);
    return unused;
  });
  const Status registered = RegisterForCopies(mapping.bytes);
  known_.push_back({.mapping = mapping, .registered = registered.has_value()});
  if (!registered.has_value() && print_ && !std::exchange(was_refused_, true)) {
    print_(fmt::format("batches are copied to the GPU from pageable memory: {}",
                       registered.error().ToString()));
  }
}

void DeviceFeed::Forget(const Known& known) {
  if (known.registered) UnregisterForCopies(known.mapping.bytes);
}

}  // namespace forebay::train
