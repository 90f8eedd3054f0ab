// Computes the capacities of the tiers on this machine from the configuration. Used by the daemon,
// which creates the tiers, and by `--check`, which only reports.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::daemon {

// Bytes of the RAM tier, a multiple of the page size. A percentage refers to the memory that this
// process may use (tier::MemoryLimitBytes).
Result<std::uint64_t> RamCapacity(const Config& config);
// Bytes of the SSD tier in `directory`. A percentage refers to the size of its file system.
Result<std::uint64_t> SsdCapacity(const Config& config, io::Directory& directory);

// Returns which pages the memory of the RAM tier and of the slots may have, from daemon.huge_pages.
tier::HugePageUse ConfiguredHugePages(const Config& config);

// How tiers of these capacities are divided for the data sets of `config`. Without an SSD tier,
// `ssd_bytes` is 0.
plan::TierPlan PlanTiers(const Config& config, const plan::TierSpace& capacity);

}  // namespace forebay::daemon
