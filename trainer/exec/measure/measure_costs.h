// MeasureCosts: what a rank does besides forward and backward passes, measured on this machine, for
// the simulator and the planners.
#pragma once

#include <cstdint>
#include <functional>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/link_probe.h"
#include "trainer/exec/swap/storage_swap.h"
#include "trainer/numerics/optimiser.h"
#include "trainer/schedule/plan_simulator.h"

namespace forebay::train {

struct CostRequest {
  LinkProbe links = {};  // what messages cost
  OptimiserOptions optimiser = {};
  std::uint64_t bucket_bytes = 4U << 20;  // of reductions
  torch::Device device = torch::kCPU;     // where ranks compute
  SwapOptions swap = {};
  std::function<std::uint64_t()> now_ns;  // monotonic
};

// Collective: all ranks work at the same time, as they will in a step, and all get rank 0's
// figures. Takes some tenths of a second and 64 MB. Reductions are over all ranks. Costs that a job
// of one rank does not have keep their default.
Result<SimulationCosts> MeasureCosts(const CostRequest& request, Communicator& communicator);

}  // namespace forebay::train
