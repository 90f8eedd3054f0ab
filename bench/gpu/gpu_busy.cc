// Runs work under LibTorch's profiler and sums up when the device was busy. The profiler gives one
// interval for each kernel, copy or operator; they may overlap, so their union is taken.
// forebay_gpu_bench calls this with --gap, to tell idle time of the GPU from slow kernels.
#include "bench/gpu/gpu_busy.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <torch/csrc/autograd/profiler_kineto.h>
#ifdef FOREBAY_LIBTORCH_HAS_CUDA
#include <kineto/ActivityType.h>
#endif

namespace forebay::train {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

#ifdef FOREBAY_LIBTORCH_HAS_CUDA
// Marks of the user and waits lie on the GPU's lines, too, and are no work.
bool IsWorkOfGpu(const kineto::KinetoEvent& event) {
  switch (static_cast<libkineto::ActivityType>(event.activityType())) {
    case libkineto::ActivityType::CONCURRENT_KERNEL:
    case libkineto::ActivityType::GPU_MEMCPY:
    case libkineto::ActivityType::GPU_MEMSET: return true;
    default: return false;
  }
}
#else
bool IsWorkOfGpu(const kineto::KinetoEvent&) { return false; }
#endif

// LibTorch 1.13 counts microseconds.
template <typename Event>
Interval IntervalOf(const Event& event) {
  if constexpr (requires { event.startNs(); }) {
    return {event.startNs(), event.startNs() + event.durationNs()};
  } else {
    return {1000 * event.startUs(), 1000 * (event.startUs() + event.durationUs())};
  }
}

}  // namespace

// Kernels of several streams overlap, so a sum would count some time twice.
std::uint64_t UnionNs(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin_ns);
  std::uint64_t sum_ns = 0;
  std::uint64_t counted_ns = 0;  // up to here all is
  for (const Interval& interval : intervals) {
    const std::uint64_t begin_ns = std::max(interval.begin_ns, counted_ns);
    if (interval.end_ns <= begin_ns) continue;
    sum_ns += interval.end_ns - begin_ns;
    counted_ns = interval.end_ns;
  }
  return sum_ns;
}

Result<std::uint64_t> BusyNs(const c10::Device& device, const std::function<Status()>& work) {
  const torch::profiler::impl::ProfilerConfig config(
      torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities = {device.is_cpu() ? ActivityType::CPU
                                                             : ActivityType::CUDA};
  // Before it is enabled: preparing starts CUPTI, which takes long and should not be seen as idle.
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  Status worked = work();
  const std::unique_ptr<kineto::ProfilerResult> profile = kineto::disableProfiler();
  // After the profiler is off again, so that a failed run does not slow down those behind it.
  FOREBAY_TRY(worked);
  std::vector<Interval> busy;
  for (const kineto::KinetoEvent& event : profile->events()) {
    const bool counts = device.is_cpu() ? event.deviceType() == c10::DeviceType::CPU
                                        : IsWorkOfGpu(event);
    if (counts) busy.push_back(IntervalOf(event));
  }
  if (busy.empty()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "LibTorch's profiler saw nothing on the device: of a GPU it needs CUPTI, and the "
                 "right to use it");
  }
  return UnionNs(std::move(busy));
}

}  // namespace forebay::train
