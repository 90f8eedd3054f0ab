// The names of classes and channels are keys of the JSON that runs leave behind: they do not
// change.
#include "trainer/core/metrics/step_account.h"

#include <algorithm>
#include <numeric>

namespace forebay::train {

std::string_view Name(TimeClass time) {
  switch (time) {
    case TimeClass::kCompute: return "compute";
    case TimeClass::kRecompute: return "recompute";
    case TimeClass::kOptimiser: return "optimiser";
    case TimeClass::kWaitRecv: return "wait_recv";
    case TimeClass::kWaitReduce: return "wait_reduce";
    case TimeClass::kSwapStall: return "swap_stall";
    case TimeClass::kWaitData: return "wait_data";
    case TimeClass::kFeed: return "feed";
    case TimeClass::kIdle: return "idle";
    case TimeClass::kOther: return "other";
  }
  return "?";
}

std::string_view Name(ByteChannel channel) {
  switch (channel) {
    case ByteChannel::kActivation: return "activation";
    case ByteChannel::kGradient: return "gradient";
    case ByteChannel::kReduction: return "reduction";
    case ByteChannel::kSwap: return "swap";
  }
  return "?";
}

// What no class accounts for is "other", so that the classes add up to the whole step.
void StepAccount::Close() {
  // It may have been closed before.
  at(TimeClass::kOther) = 0;
  const std::uint64_t known = std::accumulate(ns.begin(), ns.end(), std::uint64_t{0});
  at(TimeClass::kOther) = step_ns > known ? step_ns - known : 0;
}

// Peaks are levels, so the higher one counts.
StepAccount& StepAccount::operator+=(const StepAccount& other) {
  for (std::size_t at = 0; at < kTimeClasses; ++at) ns[at] += other.ns[at];
  for (std::size_t at = 0; at < kByteChannels; ++at) bytes[at] += other.bytes[at];
  step_ns += other.step_ns;
  plan_ns += other.plan_ns;
  peak_bytes = std::max(peak_bytes, other.peak_bytes);
  return *this;
}

}  // namespace forebay::train
