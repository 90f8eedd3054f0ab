// CapacityNeed: what to configure so that extents that have no home get one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/plan/placement.h"

namespace forebay::plan {

// How far the placer gets with `extents`, in this order, where it has `room`.
struct Fill {
  std::vector<std::size_t> homeless_extents;  // indices
  Footprint homeless;                         // what they would take on each tier
  Room left;
};
Fill FillRoom(const Room& room, std::span<const Footprint> extents);

// Capacities, in whole MiB, each of which suffices alone where the other stays as it is.
struct CapacityNeed {
  std::uint64_t ram_bytes = 0;
  std::uint64_t ssd_bytes = 0;
};

// What `extents`, in the order of their placement, need where the tiers are `tiers` and these
// extents may use `room` of them. Where all of them fit, that is what is configured, or less.
CapacityNeed NeedOf(const TierPlan& tiers, const Room& room, std::span<const Footprint> extents);

// "set tier.ram.capacity to 160 MiB (now 96 MiB), or tier.ssd.capacity to 70 MiB (now none: ...)"
std::string CapacityAdvice(const TierPlan& tiers, const CapacityNeed& need);
// The same where the capacities suffice, but the SSD did not take as much as it has: its file
// system is full, or it has failed. `ram_bytes`: the RAM tier that suffices without more of it.
std::string RefusedSsdAdvice(const TierPlan& tiers, std::uint64_t ram_bytes);

}  // namespace forebay::plan
