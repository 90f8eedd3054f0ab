// Capacities as people write them: "8GiB", "500MB", "25%"; and what a percentage is of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::tier {

// Bytes of a capacity: a whole number with an optional unit (B, kB, MB, GB, TB, PB in powers of
// 1000; KiB, MiB, GiB, TiB, PiB of 1024; case does not matter) or a percentage, 1% to 100%, of
// `whole_bytes`, rounded down. Spaces around the number are ignored. kInvalidArgument says what
// is wrong with the text; kFailedPrecondition where a percentage is asked of 0, that is of an
// unknown whole. The result is at least 1.
Result<std::uint64_t> ParseCapacity(std::string_view text, std::uint64_t whole_bytes);

// The memory that this process may use: the smallest of the machine's and the limits of its
// cgroup (v1 or v2) and of that cgroup's ancestors. 0 where nothing could be read. `root` is
// put before /proc and /sys, for tests. A limit that cannot be read or parsed does not count.
std::uint64_t MemoryLimitBytes(const std::string& root = "");

}  // namespace forebay::tier
