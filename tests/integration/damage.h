// Damage: bits flipped where a daemon keeps extents, behind its back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/daemon_process.h"
#include "tests/integration/raw_client.h"

namespace forebay::integration {

// Paths of the published segments beneath `ssd_path`, sorted.
std::vector<std::string> SegmentPaths(const std::string& ssd_path);

// Flips one bit of the file and syncs it; false where it cannot.
bool FlipBitInFile(const std::string& path, std::uint64_t byte, int bit);

// Finds record `id` in the daemon's RAM tier, through the mapping of `client`, and flips a bit
// of it in the daemon's own memory. False where it is not there, or the kernel does not let one
// process write another's memory.
bool FlipBitInRam(const DaemonProcess& daemon, const RawClient& client, std::uint64_t id);

}  // namespace forebay::integration
