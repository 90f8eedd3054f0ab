// What the tiers of this machine hold, as configured: for the daemon, which makes them so, and for
// `--check`, which only says so.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"

namespace forebay::daemon {

// In whole pages. A share is one of the memory that this process may use.
Result<std::uint64_t> RamCapacity(const Config& config);
// Of the SSD tier in `directory`. A share is one of its file system.
Result<std::uint64_t> SsdCapacity(const Config& config, io::Directory& directory);

// How tiers of these capacities are divided for the data sets of `config`. Without an SSD tier,
// `ssd_bytes` is 0.
plan::TierPlan PlanTiers(const Config& config, const plan::Room& capacity);

}  // namespace forebay::daemon
