// With LibTorch that has no CUDA the calls for GPUs compile to errors or to nothing. On a GPU, all
// settings that make results depend on timing or on the machine are switched off when the device is
// chosen, because a run's weights must be the same every time.
#include "trainer/exec/device/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/version.h>
#ifdef FOREBAY_LIBTORCH_HAS_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#endif

#include <cerrno>
#include <cstdlib>

namespace forebay::train {
namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11)
// LibTorch gives cuBLAS a workspace of one size for each handle and stream, so that products are
// the same in every run.
Status FixWorkspaces() { return {}; }
#else
// With deterministic algorithms these versions demand a fixed size of cuBLAS's workspaces, which
// 2.11 does not.
Status FixWorkspaces() {
  constexpr const char* kVariable = "CUBLAS_WORKSPACE_CONFIG";
  if (::setenv(kVariable, ":4096:8", /*overwrite=*/0) == 0) return {};
  return Error::FromErrno(errno, kVariable);
}
#endif

Status MakeDeterministic() {
  FOREBAY_TRY(FixWorkspaces());
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
  context.setDeterministicFillUninitializedMemory(false);  // nothing here reads such memory
#endif
  // Benchmarking would choose kernels by their time, and TF32 has fewer bits than fp32 says.
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  return {};
}

// Two causes with two remedies: no driver, or a program without CUDA.
Error NoGpu(std::string_view name) {
#ifdef FOREBAY_LIBTORCH_HAS_CUDA
  constexpr std::string_view kRemedy =
      "LibTorch " TORCH_VERSION " sees no GPU: is the driver loaded, and does "
      "CUDA_VISIBLE_DEVICES name one? Or take --device cpu";
#else
  constexpr std::string_view kRemedy =
      "this program was built with LibTorch " TORCH_VERSION " without CUDA: build it with LibTorch "
      "2 and CUDA (docs/trainer.md, \"Builds\"), or take --device cpu";
#endif
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("run.device = \"{}\": {}", name, kRemedy));
}

}  // namespace

Result<torch::Device> ChooseDevice(std::string_view name, std::uint32_t local_rank) {
  if (name == "cpu" || (name == "auto" && !torch::cuda::is_available())) {
    return torch::Device(torch::kCPU);
  }
  if (!torch::cuda::is_available()) return NoGpu(name);
  FOREBAY_TRY(MakeDeterministic());
  // More ranks than GPUs share them in turn.
  const auto gpus = static_cast<std::uint32_t>(torch::cuda::device_count());
  const torch::Device device(torch::kCUDA, static_cast<torch::DeviceIndex>(local_rank % gpus));
  // The thread's device from here on: what is allocated without one lands there.
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

// Part of the numeric identity of a run, so it names everything that may change a bit.
std::string DescribeDevice(const torch::Device& device) {
#ifdef FOREBAY_LIBTORCH_HAS_CUDA
  if (!device.is_cpu()) {
    return fmt::format("{}, CUDA {}, cuDNN {}", at::cuda::getDeviceProperties(device.index())->name,
                       at::Context::versionCUDART(), at::Context::versionCuDNN());
  }
#endif
  return device.is_cpu() ? "" : device.str();
}

// Not filled: a message or a copy writes all of it.
torch::Tensor HostRoom(at::IntArrayRef shape, torch::ScalarType type,
                       const torch::Device& device) {
  return torch::empty(shape, torch::TensorOptions(type).pinned_memory(!device.is_cpu()));
}

// The deleter holds the tensor that owns the memory.
std::shared_ptr<std::byte[]> PinnedBytes(std::size_t bytes) {
  const torch::Tensor room = torch::empty({static_cast<std::int64_t>(bytes)},
                                          torch::TensorOptions(torch::kUInt8).pinned_memory(true));
  return {static_cast<std::byte*>(room.data_ptr()), [room](std::byte*) {}};
}

torch::Tensor OnDevice(const torch::Tensor& host, const torch::Device& device) {
  if (!host.defined() || host.device() == device) return host;
  // A copy from pageable memory would stop the processor until it is done.
  const torch::Tensor pinned = host.is_pinned() ? host : host.contiguous().pin_memory();
  return pinned.to(device, /*non_blocking=*/true);
}

#ifdef FOREBAY_LIBTORCH_HAS_CUDA

Status RegisterForCopies(std::span<const std::byte> memory) {
  const cudaError_t refused =
      cudaHostRegister(const_cast<std::byte*>(memory.data()), memory.size(),
                       cudaHostRegisterReadOnly | cudaHostRegisterPortable);
  if (refused == cudaSuccess) return {};
  (void)cudaGetLastError();  // or LibTorch takes it for its own
  return Error(ErrorCode::kUnimplemented,
               fmt::format("registering {} bytes of shared memory with CUDA: {}", memory.size(),
                           cudaGetErrorString(refused)));
}

void UnregisterForCopies(std::span<const std::byte> memory) {
  if (cudaHostUnregister(const_cast<std::byte*>(memory.data())) != cudaSuccess) {
    (void)cudaGetLastError();  // it goes with the process
  }
}

DeviceMemory DeviceMemoryOf(const torch::Device& device) {
  if (device.is_cpu()) return {};
  constexpr std::size_t kAllPools = 0;
  const auto taken =
      c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[kAllPools];
  return {.live_bytes = static_cast<std::uint64_t>(taken.current),
          .peak_bytes = static_cast<std::uint64_t>(taken.peak)};
}

void BeginDevicePeak(const torch::Device& device) {
  if (!device.is_cpu()) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
}

#else

Status RegisterForCopies(std::span<const std::byte>) {
  return Error(ErrorCode::kUnimplemented, "this program was built without CUDA");
}

void UnregisterForCopies(std::span<const std::byte>) {}

DeviceMemory DeviceMemoryOf(const torch::Device&) { return {}; }

void BeginDevicePeak(const torch::Device&) {}

#endif

void SynchroniseComputation(const torch::Device& device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

void Synchronise(const torch::Device& device) {
  if (!device.is_cpu()) torch::cuda::synchronize(device.index());
}

}  // namespace forebay::train
