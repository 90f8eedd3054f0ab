// The device that a rank computes on: the processor, or one of the node's GPUs. Together with
// device_link it is all code that knows of other devices than the processor. It also compiles with
// a LibTorch without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <torch/types.h>

#include "proto/contract/result.h"

namespace forebay::train {

// "cpu"; "cuda": the node's GPU number `local_rank`, modulo how many there are; "auto": that where
// LibTorch sees one. On a GPU, the process's algorithms become those that give one result: no
// autotuning, no sums in any order, no TF32. Call it before anything else is computed there.
// kFailedPrecondition where there is no GPU, with the remedy.
Result<torch::Device> ChooseDevice(std::string_view name, std::uint32_t local_rank);

// What results depend on: the GPU's model and its libraries; "" for the processor.
std::string DescribeDevice(const torch::Device& device);

// Uninitialised memory of the host. With a GPU it is pinned, so that copies run beside the
// computation.
torch::Tensor HostRoom(at::IntArrayRef shape, torch::ScalarType type, const torch::Device& device);

// Pinned memory as plain bytes.
std::shared_ptr<std::byte[]> PinnedBytes(std::size_t bytes);

// Returns a tensor where the rank computes: the tensor itself, or a copy that is ordered before
// what is computed next. Pageable memory is copied into pinned memory first, and may be freed when
// this returns.
torch::Tensor OnDevice(const torch::Tensor& host, const torch::Device& device);

// Registers whole pages of host memory, which may be read-only, with CUDA, so that copies to a GPU
// are made directly from them, beside the computation. kUnimplemented if the machine cannot do
// this, and without CUDA.
Status RegisterForCopies(std::span<const std::byte> memory);
// Call it before the memory is unmapped.
void UnregisterForCopies(std::span<const std::byte> memory);

// What tensors take of a GPU's memory, operators' scratch memory included, as LibTorch's allocator
// counts it for the whole process. Zeros for a processor.
struct DeviceMemory {
  std::uint64_t live_bytes = 0;
  std::uint64_t peak_bytes = 0;  // since the last BeginDevicePeak
};
DeviceMemory DeviceMemoryOf(const torch::Device& device);
void BeginDevicePeak(const torch::Device& device);

// Waits until everything that was asked of the device is done. On a processor it is already.
void Synchronise(const torch::Device& device);
// Waits for what this thread computes on the device, but not for copies on other streams.
void SynchroniseComputation(const torch::Device& device);

}  // namespace forebay::train
