// The greedy placer and the arithmetic of tier capacities. Capacities are whole MiB, because the
// configuration is written in such units and messages repeat them to the user.
#include "server/plan/placement.h"

#include <algorithm>

#include "proto/contract/align_up.h"
#include "proto/contract/limits.h"

namespace forebay::plan {

std::uint64_t FootprintBytes(std::uint64_t image_bytes) {
  return AlignUp(image_bytes, limits::kIoAlignmentBytes);
}

std::uint64_t RamPlan::WorkingBytes() const {
  if (!has_passing_extents) return 0;
  // The bounds keep a small tier usable; extents then wait for each other. One extent has to fit
  // beside the homes, or none could pass.
  const std::uint64_t wanted = std::max(capacity_bytes / 16, 2 * largest_extent_bytes);
  const std::uint64_t one_extent = std::min(largest_extent_bytes, capacity_bytes / 2);
  return std::min(wanted, std::max(capacity_bytes / 4, one_extent));
}

std::uint64_t RamPlan::HomeBytes() const {
  return capacity_bytes - std::max(capacity_bytes / 32, WorkingBytes());
}

std::uint64_t RamPlan::CapacityFor(std::uint64_t bytes) const {
  RamPlan plan = *this;
  // A binary search, because HomeBytes is a minimum of several rules and has no simple inverse. At
  // least half of a capacity is for homes, which gives the upper bound.
  std::uint64_t too_small = 0, enough = bytes / limits::kMiB * 2 + 8;
  while (enough - too_small > 1) {
    const std::uint64_t middle = too_small + (enough - too_small) / 2;
    plan.capacity_bytes = middle * limits::kMiB;
    (plan.HomeBytes() >= bytes ? enough : too_small) = middle;
  }
  return enough * limits::kMiB;
}

std::uint64_t SsdPlan::CapacityFor(std::uint64_t bytes) const {
  SsdPlan plan = *this;
  // Starts at or below the answer. The roundings lose little, so the loop takes one or two steps.
  plan.capacity_bytes = bytes / home_permille * 1000 / limits::kMiB * limits::kMiB;
  while (plan.HomeBytes() < bytes) plan.capacity_bytes += limits::kMiB;
  return plan.capacity_bytes;
}

// RAM first: an extent in RAM costs no read, and views can point into it.
HomeTier Placer::Place(const Footprint& footprint) {
  if (PlaceInRam(footprint)) return HomeTier::kRam;
  // An extent that fits nowhere does not end the placement: a smaller one may still fit.
  if (footprint.ssd_bytes > space_.ssd_bytes) return HomeTier::kNone;
  space_.ssd_bytes -= footprint.ssd_bytes;
  return HomeTier::kSsd;
}

bool Placer::PlaceInRam(const Footprint& footprint) {
  if (footprint.ram_bytes > space_.ram_bytes) return false;
  space_.ram_bytes -= footprint.ram_bytes;
  return true;
}

void Placer::CloseSsd() {
  is_ssd_closed_ = true;
  space_.ssd_bytes = 0;
}

void Placer::Release(HomeTier home, const Footprint& planned) {
  if (home == HomeTier::kRam) space_.ram_bytes += planned.ram_bytes;
  if (home == HomeTier::kSsd && !is_ssd_closed_) space_.ssd_bytes += planned.ssd_bytes;
}

}  // namespace forebay::plan
