// CapacityNeed: the capacities that give every extent a home, for error messages and `status`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/plan/placement.h"

namespace forebay::plan {

// The outcome of placing `extents` in this order where `space` is free.
struct Fill {
  std::vector<std::size_t> extents_without_home;  // indices of the extents that fit on no tier
  Footprint missing;                              // the space that they would take on each tier
  TierSpace left;
};
Fill FillSpace(const TierSpace& space, std::span<const Footprint> extents);

// Capacities in whole MiB. Each is enough if the capacity of the other tier stays as it is.
struct CapacityNeed {
  std::uint64_t ram_bytes = 0;
  std::uint64_t ssd_bytes = 0;
};

// Returns what `extents`, in the order of their placement, need if the tiers are `tiers` and these
// extents may use `space` of them. If all fit, this is at most the configured capacity.
CapacityNeed NeedOf(const TierPlan& tiers, const TierSpace& space,
                    std::span<const Footprint> extents);

// "set tier.ram.capacity to 160 MiB (now 96 MiB), or tier.ssd.capacity to 70 MiB (now 64 MiB)"
std::string CapacityAdvice(const TierPlan& tiers, const CapacityNeed& need);
// The advice if the capacities are enough, but the SSD took less than its capacity, because its
// file system is full or it has failed. `ram_bytes` is the RAM capacity that is enough without it.
std::string RefusedSsdAdvice(const TierPlan& tiers, std::uint64_t ram_bytes);

}  // namespace forebay::plan
