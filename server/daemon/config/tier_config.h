// Computes the capacities of the tiers on this machine from the configuration. Used by the daemon,
// which creates the tiers, and by `--check`, which only reports.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/io/backend_selection.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::daemon {

// Bytes of the RAM tier, a multiple of the page size. A percentage refers to the memory that this
// process may use (tier::MemoryLimitBytes).
Result<std::uint64_t> RamCapacity(const Config& config);
// Bytes of the SSD tier in `directory`. A percentage refers to the size of its file system.
Result<std::uint64_t> SsdCapacity(const Config& config, io::Directory& directory);

// The directory `path`, or if it does not exist the nearest parent that does: where the daemon
// would create it. `path` is absolute.
std::string NearestDirectory(const std::string& path);

// Returns which of the two back ends the daemon uses, from daemon.io_backend.
io::BackendChoice ConfiguredBackend(const Config& config);

// Returns which pages the memory of the RAM tier and of the slots may have, from daemon.huge_pages.
tier::HugePageUse ConfiguredHugePages(const Config& config);

// The memory of the RAM tier and of the slots: capacity, size of the regions, and pages.
Result<tier::RamArena::Options> RamArenaOptions(const Config& config);
Result<tier::RamArena::Options> SlotArenaOptions(const Config& config);

// How tiers of these capacities are divided for the data sets of `config`. Without an SSD tier,
// `ssd_bytes` is 0.
plan::TierPlan PlanTiers(const Config& config, const plan::TierSpace& capacity);

}  // namespace forebay::daemon
