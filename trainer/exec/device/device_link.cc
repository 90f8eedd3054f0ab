// Copies on a stream of their own. An event makes the copy wait for what was computed before it was
// asked for, and another makes later computation wait for the copy. The processor never waits.
#include "trainer/exec/device/device_link.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "trainer/exec/device/device.h"

namespace forebay::train {
namespace {

// Streams of any kind of device, so that this file needs no header of CUDA.
c10::impl::VirtualGuardImpl StreamsOf(const torch::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

// LibTorch copies between tensors: plain memory is wrapped.
torch::Tensor OnHost(std::span<std::byte> host) {
  return torch::from_blob(host.data(), {static_cast<std::int64_t>(host.size())}, torch::kUInt8);
}

}  // namespace

DeviceLink::DeviceLink(const torch::Device& device)
    : device_(device), stream_(StreamsOf(device).getStreamFromGlobalPool(device)) {}

// The memory of copies that are under way must not go before they end.
DeviceLink::~DeviceLink() {
  try {
    Synchronise(device_);
  } catch (const std::exception&) {  // a failed device has nothing left to wait for
  }
}

torch::Tensor DeviceLink::OnDevice(void* memory, std::size_t bytes) const {
  return torch::from_blob(memory, {static_cast<std::int64_t>(bytes)},
                          torch::TensorOptions(torch::kUInt8).device(device_));
}

std::uint64_t DeviceLink::ToHost(std::span<std::byte> host, void* device_memory) {
  return Begin(OnHost(host), OnDevice(device_memory, host.size()));
}

std::uint64_t DeviceLink::ToDevice(void* device_memory, std::span<std::byte> host) {
  return Begin(OnDevice(device_memory, host.size()), OnHost(host));
}

std::uint64_t DeviceLink::Begin(torch::Tensor to, const torch::Tensor& from) {
  c10::Event ready(device_.type());
  ready.record(StreamsOf(device_).getStream(device_));
  ready.block(stream_);
  {
    const c10::StreamGuard guard(stream_);
    to.copy_(from, /*non_blocking=*/true);
  }
  c10::Event done(device_.type());
  done.record(stream_);
  done_.emplace(++begun_, std::move(done));
  return begun_;
}

// Makes later computation wait, and not the processor.
void DeviceLink::Await(std::uint64_t copy) {
  const auto found = done_.find(copy);
  if (found == done_.end()) return;
  found->second.block(StreamsOf(device_).getStream(device_));
  done_.erase(found);
}

}  // namespace forebay::train
