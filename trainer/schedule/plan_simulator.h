// SimulatePlan: executes a plan's lists with measured times instead of arithmetic. It predicts how
// long the step takes, where ranks wait, and how much memory is in use.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// A path for bytes: one transfer at a time, in order. A transfer takes latency + bytes / rate.
struct LinkCost {
  std::uint64_t latency_ns = 0;
  double bytes_per_ns = 10.0;  // = GB/s; greater than 0
};

struct SimulationCosts {
  LinkCost message;     // between two ranks, in each direction
  LinkCost collective;  // of each member; a ring: 2 (n - 1) / n of the bytes pass it
  LinkCost swap;        // to the host, and back, sharing one path
  std::uint64_t call_ns = 0;  // a rank's own time for sending or receiving a message
  // A rank's own time to copy a byte of a message, at each end: transports through shared memory.
  double copy_ns_per_byte = 0;
  std::uint64_t feed_ns = 0;
  double update_ns_per_byte = 0;  // of a stage's parameters
};

// Where one rank's time goes. The parts add up to the step's time.
struct RankTimes {
  std::uint64_t compute_ns = 0;    // forward, backward, update
  std::uint64_t recompute_ns = 0;
  std::uint64_t wait_message_ns = 0;
  std::uint64_t wait_collective_ns = 0;
  std::uint64_t wait_swap_ns = 0;
  std::uint64_t other_ns = 0;      // feed, and calls of the transport
  std::uint64_t idle_ns = 0;       // done before the last rank
  std::uint64_t peak_bytes = 0;    // resident bytes included
};

// One instruction's time on one rank, for a trace.
struct PlanSpan {
  std::uint32_t rank = 0;
  std::uint32_t instruction = 0;
  std::uint64_t begin_ns = 0;  // includes what it waits
  std::uint64_t end_ns = 0;
};

struct Simulation {
  std::uint64_t step_ns = 0;
  double bubble = 0;  // part of the ranks' time, 0..1, in which they compute nothing
  std::vector<RankTimes> ranks;
  std::vector<PlanSpan> spans;  // by rank, in order

  std::uint64_t PeakBytes() const;  // of the fullest rank
};

enum class SimulationDetail : std::uint8_t {
  kAll,
  kTimes,  // neither spans nor peak bytes: half the work, for a search
};

// The plan must have passed CheckPlan. kInvalidArgument for rates that are not positive.
Result<Simulation> SimulatePlan(const StepPlan& plan, const SimulationCosts& costs,
                                SimulationDetail detail = SimulationDetail::kAll);

}  // namespace forebay::train
