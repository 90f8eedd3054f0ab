// Finds capacities by placing all extents again with more space: a formula would have to know how
// sizes mix on each tier, and would drift from the Placer. Two trials are enough in practice; the
// last answer is an upper bound that always fits.
#include "server/plan/capacity_need.h"

#include <algorithm>

#include <fmt/format.h>

#include "proto/contract/limits.h"

namespace forebay::plan {
namespace {

// More than any tier has, and far enough from 2^64 that sums do not wrap.
constexpr std::uint64_t kUnlimitedBytes = std::uint64_t{1} << 62;

std::uint64_t RamBytes(std::span<const Footprint> extents) {
  std::uint64_t bytes = 0;
  for (const Footprint& extent : extents) bytes += extent.ram_bytes;
  return bytes;
}

std::uint64_t RamNeed(const TierPlan& tiers, const TierSpace& space,
                      std::span<const Footprint> extents) {
  const Fill fill = FillSpace(space, extents);
  const std::uint64_t now_bytes = tiers.ram.HomeBytes();
  const std::uint64_t missing = fill.missing.ram_bytes;
  // First try: RAM grows by what is missing beyond the space that is left in it now. With more RAM
  // other extents go to RAM, and the rest may fit worse on SSD; then RAM grows by all that is
  // missing.
  for (const std::uint64_t more : {missing - std::min(missing, fill.left.ram_bytes), missing}) {
    RamPlan ram = tiers.ram;
    ram.capacity_bytes = ram.CapacityFor(now_bytes + more);
    const TierSpace grown = {.ram_bytes = space.ram_bytes + ram.HomeBytes() - now_bytes,
                             .ssd_bytes = space.ssd_bytes};
    if (FillSpace(grown, extents).extents_without_home.empty()) return ram.capacity_bytes;
  }
  // RAM that holds all extents is always enough.
  return tiers.ram.CapacityFor(now_bytes + std::max(space.ram_bytes, RamBytes(extents)) -
                               space.ram_bytes);
}

std::uint64_t SsdNeed(const TierPlan& tiers, const TierSpace& space,
                      std::span<const Footprint> extents) {
  // Which extents go to RAM does not depend on the size of the SSD, with one exception: if there
  // was no SSD before, RAM has less space for homes afterwards, because extents pass through it to
  // the SSD.
  RamPlan ram = tiers.ram;
  ram.has_passing_extents = true;
  const std::uint64_t lost = tiers.ram.HomeBytes() - ram.HomeBytes();
  const TierSpace with_ssd = {.ram_bytes = space.ram_bytes - std::min(lost, space.ram_bytes),
                              .ssd_bytes = kUnlimitedBytes};
  const std::uint64_t taken = kUnlimitedBytes - FillSpace(with_ssd, extents).left.ssd_bytes;
  const std::uint64_t grown = std::max(taken, space.ssd_bytes) - space.ssd_bytes;
  return tiers.ssd.CapacityFor(tiers.ssd.HomeBytes() + grown);
}

}  // namespace

Fill FillSpace(const TierSpace& space, std::span<const Footprint> extents) {
  Placer placer(space);
  Fill fill;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (placer.Place(extents[i]) != HomeTier::kNone) continue;
    fill.extents_without_home.push_back(i);
    fill.missing.ram_bytes += extents[i].ram_bytes;
    fill.missing.ssd_bytes += extents[i].ssd_bytes;
  }
  fill.left = placer.left();
  return fill;
}

CapacityNeed NeedOf(const TierPlan& tiers, const TierSpace& space,
                    std::span<const Footprint> extents) {
  return {.ram_bytes = RamNeed(tiers, space, extents), .ssd_bytes = SsdNeed(tiers, space, extents)};
}

std::string CapacityAdvice(const TierPlan& tiers, const CapacityNeed& need) {
  const bool has_ssd = tiers.ssd.capacity_bytes > 0;
  return fmt::format(
      "set tier.ram.capacity to {} MiB (now {} MiB), or tier.ssd.capacity to {} MiB ({})",
      need.ram_bytes / limits::kMiB, tiers.ram.capacity_bytes / limits::kMiB,
      need.ssd_bytes / limits::kMiB,
      has_ssd ? fmt::format("now {} MiB", tiers.ssd.capacity_bytes / limits::kMiB)
              : "there is none now: set tier.ssd.directory too");
}

std::string RefusedSsdAdvice(const TierPlan& tiers, std::uint64_t ram_bytes) {
  return fmt::format(
      "the SSD takes less than tier.ssd.capacity ({} MiB), because its file system is full or it "
      "has failed (the log says which): free space there and run 'forebay stage' again, or set "
      "tier.ram.capacity to {} MiB (now {} MiB)",
      tiers.ssd.capacity_bytes / limits::kMiB, ram_bytes / limits::kMiB,
      tiers.ram.capacity_bytes / limits::kMiB);
}

}  // namespace forebay::plan
