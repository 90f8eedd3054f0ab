// StepAccount: where the time of one training step went on one rank, and which bytes left it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/schedule/memory/plan_peaks.h"

namespace forebay::train {

// The time of a step is the sum of these classes.
enum class TimeClass : std::uint8_t {
  kCompute,     // forward and backward passes
  kRecompute,   // forward passes again, for what was dropped
  kOptimiser,
  kWaitRecv,    // for a message of another stage, or until one has gone out
  kWaitReduce,  // for sums over replicas
  kSwapStall,   // for what is being moved to the host or back
  kWaitData,    // for the next batch
  kFeed,        // the batch's bytes become tensors
  kIdle,        // done with the step before the last rank
  kOther,       // calls of the transport, bookkeeping
};
inline constexpr std::size_t kTimeClasses = 10;

enum class ByteChannel : std::uint8_t { kActivation, kGradient, kReduction, kSwap };
inline constexpr std::size_t kByteChannels = 4;

// "compute", "wait_recv"; "activation".
std::string_view Name(TimeClass time);
std::string_view Name(ByteChannel channel);

struct StepAccount {
  std::array<std::uint64_t, kTimeClasses> ns = {};
  std::array<std::uint64_t, kByteChannels> bytes = {};  // that left this rank; swap: both ways
  std::uint64_t step_ns = 0;       // of it all
  std::uint64_t plan_ns = 0;       // from the plan's first instruction to the last rank's last one
  std::uint64_t peak_bytes = 0;    // the process's resident set, the highest so far

  std::uint64_t& at(TimeClass time) { return ns[static_cast<std::size_t>(time)]; }
  std::uint64_t at(TimeClass time) const { return ns[static_cast<std::size_t>(time)]; }
  std::uint64_t& at(ByteChannel channel) { return bytes[static_cast<std::size_t>(channel)]; }
  std::uint64_t at(ByteChannel channel) const {
    return bytes[static_cast<std::size_t>(channel)];
  }

  // Nanoseconds of the computation that the step is for. Recomputation is not part of it.
  std::uint64_t UsefulNs() const {
    return at(TimeClass::kCompute) + at(TimeClass::kOptimiser);
  }
  // Assigns the part of `step_ns` that is in no other class to kOther.
  void Close();

  StepAccount& operator+=(const StepAccount& other);  // peaks: the higher one
};

// What is known of this rank's steps before they run, until the layout changes.
struct StepForecast {
  double flops = 0;              // of the model's products and convolutions, each once; 0: unknown
  std::uint64_t step_ns = 0;     // simulated; 0: unknown
  double bubble = 0;             // simulated part of all ranks' time, 0..1
  MemoryPeaks planned_bytes = {};
};

}  // namespace forebay::train
