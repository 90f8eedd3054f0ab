#include "bench/gpu/gpu_memory.h"

#include <fmt/format.h>
#ifdef FOREBAY_LIBTORCH_HAS_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace forebay::train {

#ifdef FOREBAY_LIBTORCH_HAS_CUDA

Status CapDeviceMemory(const torch::Device& device, std::uint64_t bytes) {
  if (device.is_cpu()) return Error(ErrorCode::kUnimplemented, "only a GPU's memory is capped");
  const std::uint64_t whole = at::cuda::getDeviceProperties(device.index())->totalGlobalMem;
  if (bytes == 0 || bytes > whole) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a cap of {} bytes: the GPU has {}", bytes, whole));
  }
  torch::zeros({1}, torch::TensorOptions().device(device));  // now there is an allocator
  c10::cuda::CUDACachingAllocator::setMemoryFraction(
      static_cast<double>(bytes) / static_cast<double>(whole), device.index());
  return {};
}

std::uint64_t DevicePeakBytes(const torch::Device& device) {
  if (device.is_cpu()) return 0;
  constexpr std::size_t kAllPools = 0;
  return static_cast<std::uint64_t>(
      c10::cuda::CUDACachingAllocator::getDeviceStats(device.index())
          .allocated_bytes[kAllPools]
          .peak);
}

void BeginDevicePeak(const torch::Device& device) {
  if (!device.is_cpu()) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
}

#else

Status CapDeviceMemory(const torch::Device&, std::uint64_t) {
  return Error(ErrorCode::kUnimplemented, "only a GPU's memory is capped");
}

std::uint64_t DevicePeakBytes(const torch::Device&) { return 0; }

void BeginDevicePeak(const torch::Device&) {}

#endif

}  // namespace forebay::train
