// How long a device is busy while steps run, as LibTorch's profiler sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <c10/core/Device.h>

#include "proto/contract/result.h"

namespace forebay::train {

struct Interval {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};

// Nanoseconds that lie in one of them at least.
std::uint64_t UnionNs(std::vector<Interval> intervals);

// Runs `work`, which waits for what it has asked of the device, under the profiler: how many
// nanoseconds a GPU spends on kernels, copies and fills, several at once counting once; of a
// processor, LibTorch's operators. The profiler slows the host down: the time that `work` takes
// here says nothing. kFailedPrecondition where nothing was seen; what `work` fails with. May throw,
// and then leaves the profiler on.
Result<std::uint64_t> BusyNs(const c10::Device& device, const std::function<Status()>& work);

}  // namespace forebay::train
