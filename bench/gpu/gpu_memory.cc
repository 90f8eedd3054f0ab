// Limits the memory that LibTorch's allocator takes of a GPU. forebay_gpu_bench calls this with
// --cap-mib: a plan for a budget then runs as on a GPU of that size, and what needs more fails.
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
  // LibTorch takes a fraction of the whole memory, and not a number of bytes.
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

#else

Status CapDeviceMemory(const torch::Device&, std::uint64_t) {
  return Error(ErrorCode::kUnimplemented, "only a GPU's memory is capped");
}

#endif

}  // namespace forebay::train
