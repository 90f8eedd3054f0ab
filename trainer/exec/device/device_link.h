// DeviceLink: copies between a GPU's memory and the host's on a stream of their own, while the GPU
// computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

namespace forebay::train {

// The counterpart of CopyLink for a GPU. No call waits: the GPU does. Copies are done in the order
// in which they are begun. Not thread-safe. May throw.
class DeviceLink {
 public:
  explicit DeviceLink(const torch::Device& device);
  // Waits for the device.
  ~DeviceLink();
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;

  // Begin a copy, which starts when everything that the GPU was asked for before is done. The
  // host's memory is pinned, and has the size of what lies at `device_memory`. They return the
  // number of the copy, for Await.
  std::uint64_t ToHost(std::span<std::byte> host, void* device_memory);
  std::uint64_t ToDevice(void* device_memory, std::span<std::byte> host);
  // Makes everything that the GPU is asked for from now on start after the copy.
  void Await(std::uint64_t copy);

 private:
  std::uint64_t Begin(torch::Tensor to, const torch::Tensor& from);
  torch::Tensor OnDevice(void* memory, std::size_t bytes) const;

  torch::Device device_;
  c10::Stream stream_;
  std::uint64_t begun_ = 0;
  std::map<std::uint64_t, c10::Event> done_;  // of copies that nothing has awaited
};

}  // namespace forebay::train
