// The two shares that a capacity may be: of memory and of a file system. PlanTiers adds what
// decides how large the staging reserve of the RAM tier is (plan::RamPlan).
#include "server/daemon/config/tier_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "proto/contract/limits.h"
#include "server/daemon/config/dataset_config.h"
#include "server/stage/placement/placement_table.h"
#include "server/tier/capacity.h"

namespace forebay::daemon {
namespace {

// A client maps every region, so there are few: regions of 1 GiB, or larger ones for a large tier.
constexpr std::uint64_t kRegionBytesMin = 1 * limits::kGiB;
constexpr std::uint64_t kArenaRegionsMax = 32;

}  // namespace

Result<std::uint64_t> RamCapacity(const Config& config) {
  // The limit of the job's cgroup counts, if it has one: a quarter of the machine's memory could be
  // more than the job may use.
  const auto bytes = tier::ParseCapacity(config.ram_capacity, tier::MemoryLimitBytes());
  if (!bytes.has_value()) return bytes.error().WithContext("tier.ram.capacity");
  // The arena hands out whole pages.
  return *bytes / limits::kIoAlignmentBytes * limits::kIoAlignmentBytes;
}

Result<std::uint64_t> SsdCapacity(const Config& config, io::Directory& directory) {
  // A share of the whole file system and not of what is free: the tier's own segments of an earlier
  // daemon take space too.
  FOREBAY_ASSIGN(const io::Directory::Space space, directory.FreeSpace());
  const auto bytes = tier::ParseCapacity(config.ssd_capacity, space.total_bytes);
  if (!bytes.has_value()) return bytes.error().WithContext("tier.ssd.capacity");
  return *bytes;
}

std::string NearestDirectory(const std::string& path) {
  std::filesystem::path nearest = path;
  std::error_code unreadable;
  // Ends at "/", which exists.
  while (nearest.has_relative_path() && !std::filesystem::is_directory(nearest, unreadable)) {
    nearest = nearest.parent_path();
  }
  return nearest.string();
}

io::BackendChoice ConfiguredBackend(const Config& config) {
  // The setter of the key takes no other text.
  if (config.io_backend == "io_uring") return io::BackendChoice::kIoUring;
  return config.io_backend == "threads" ? io::BackendChoice::kThreads
                                        : io::BackendChoice::kAutomatic;
}

tier::HugePageUse ConfiguredHugePages(const Config& config) {
  // The setter of the key takes no other text.
  if (config.huge_pages == "off") return tier::HugePageUse::kOff;
  return config.huge_pages == "transparent" ? tier::HugePageUse::kTransparent
                                            : tier::HugePageUse::kAuto;
}

Result<tier::RamArena::Options> RamArenaOptions(const Config& config) {
  FOREBAY_ASSIGN(const std::uint64_t ram_bytes, RamCapacity(config));
  return tier::RamArena::Options{
      .capacity_bytes = ram_bytes,
      // One megabyte more, so that rounding down does not make one region too many.
      .region_bytes = std::max(kRegionBytesMin, ram_bytes / kArenaRegionsMax + limits::kMiB),
      .huge_pages = ConfiguredHugePages(config)};
}

Result<tier::RamArena::Options> SlotArenaOptions(const Config& config) {
  const auto slot_bytes = ParseByteCount(config.slots_capacity, kSlotsBounds);
  if (!slot_bytes.has_value()) return slot_bytes.error().WithContext("slots.capacity");
  return tier::RamArena::Options{.capacity_bytes = *slot_bytes,
                                 .region_bytes = kRegionBytesMin,
                                 .huge_pages = ConfiguredHugePages(config)};
}

plan::TierPlan PlanTiers(const Config& config, const plan::TierSpace& capacity) {
  plan::TierPlan tiers{.ram = {.capacity_bytes = capacity.ram_bytes,
                               .has_passing_extents = capacity.ssd_bytes > 0},
                       .ssd = stage::SsdPlanOf(capacity.ssd_bytes)};
  plan::RamPlan& ram = tiers.ram;
  for (const stage::DatasetOptions& dataset : config.datasets) {
    // The plan uses the configured size, which is the usual one. A larger chunk record of a pack
    // makes only a single extent larger.
    ram.largest_extent_bytes = std::max(ram.largest_extent_bytes, dataset.source.extent_bytes);
    // A format that is not configured is detected later, and may be one that needs a scan.
    const std::optional<catalog::Format> format = dataset.source.format;
    const bool is_scanned = !format || !catalog::BuildsFromMetadata(*format);
    ram.has_passing_extents = ram.has_passing_extents || is_scanned ||
                              dataset.compression != stage::Compression::kOff;
  }
  return tiers;
}

}  // namespace forebay::daemon
