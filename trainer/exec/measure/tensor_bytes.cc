// On a processor, an allocator in front of LibTorch's own counts bytes that are live and their
// peak. Sizes are kept in a map, because an allocator is not told the size of what it frees. On a
// GPU, LibTorch's allocator counts by itself.
#include "trainer/exec/measure/tensor_bytes.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>

#include <torch/types.h>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "proto/contract/thread_annotations.h"
#include "trainer/exec/device/device.h"

namespace forebay::train {
namespace {

struct Counters {
  Mutex mutex;
  std::unordered_map<void*, std::size_t> sizes FOREBAY_GUARDED_BY(mutex);
  std::uint64_t live FOREBAY_GUARDED_BY(mutex) = 0;
  std::uint64_t peak FOREBAY_GUARDED_BY(mutex) = 0;
};

// Tensors may outlive everything else in the process, and so do these.
Counters& CountersOfProcess() {
  static auto* const counters = std::make_unique<Counters>().release();
  return *counters;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  Counters& counters = CountersOfProcess();
  {
    const MutexLock lock(counters.mutex);
    // Always there: this deleter belongs to memory of Allocate only.
    const auto found = counters.sizes.find(memory);
    counters.live -= found->second;
    counters.sizes.erase(found);
  }
  // Outside the lock, which every allocation of the process takes.
  c10::free_cpu(memory);
}

// What was allocated before the counting began is freed by its own deleter, so that Free knows
// every address.
at::DataPtr Allocate(std::size_t bytes) {
  void* memory = bytes == 0 ? nullptr : c10::alloc_cpu(bytes);
  if (memory != nullptr) {
    Counters& counters = CountersOfProcess();
    const MutexLock lock(counters.mutex);
    counters.sizes[memory] = bytes;
    counters.live += bytes;
    counters.peak = std::max(counters.peak, counters.live);
  }
  return {memory, memory, &Free, at::Device(at::DeviceType::CPU)};
}

// LibTorch 1.13 wants `allocate` to be const, later ones do not, and want copy_data: whichever is
// virtual there is overridden.
struct CountingAllocator final : at::Allocator {
  at::DataPtr allocate(std::size_t bytes) { return Allocate(bytes); }
  at::DataPtr allocate(std::size_t bytes) const { return Allocate(bytes); }
  at::DeleterFnPtr raw_deleter() const { return &Free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

// Whoever is asked later wins among those of one priority.
TensorBytes::TensorBytes(const c10::Device& device) : device_(device) {
  if (device_.is_cpu()) {
    static CountingAllocator allocator;
    before_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&allocator, UINT8_MAX);
  }
  BeginPeak();
}

// Tensors that were counted and live on are still freed by Free.
TensorBytes::~TensorBytes() {
  if (before_ != nullptr) c10::SetCPUAllocator(before_, UINT8_MAX);
}

std::uint64_t TensorBytes::Live() const {
  if (!device_.is_cpu()) return DeviceMemoryOf(device_).live_bytes;
  Counters& counters = CountersOfProcess();
  const MutexLock lock(counters.mutex);
  return counters.live;
}

std::uint64_t TensorBytes::Peak() const {
  if (!device_.is_cpu()) return DeviceMemoryOf(device_).peak_bytes;
  Counters& counters = CountersOfProcess();
  const MutexLock lock(counters.mutex);
  return counters.peak;
}

void TensorBytes::BeginPeak() {
  if (!device_.is_cpu()) return BeginDevicePeak(device_);
  Counters& counters = CountersOfProcess();
  const MutexLock lock(counters.mutex);
  counters.peak = counters.live;
}

}  // namespace forebay::train
