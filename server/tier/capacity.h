// Parses sizes and capacities as people write them ("8GiB", "500MB", "25%"), and finds the memory
// that a percentage of RAM refers to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::tier {

// Bytes of a size: a whole number, also 0, with an optional unit (B, kB, MB, GB, TB, PB in powers
// of 1000; KiB, MiB, GiB, TiB, PiB in powers of 1024; case does not matter). Spaces around the
// number are ignored. kInvalidArgument says what is wrong with the text.
Result<std::uint64_t> ParseBytes(std::string_view text);

// Bytes of a capacity: a size as ParseBytes takes it, but not 0, or a percentage, 1% to 100%, of
// `whole_bytes`, rounded down but at least 1. kInvalidArgument says what is wrong with the text.
// kFailedPrecondition: `text` is a percentage, and `whole_bytes` is 0, which means unknown.
Result<std::uint64_t> ParseCapacity(std::string_view text, std::uint64_t whole_bytes);

// The memory that this process may use: the memory of the machine or, if smaller, the smallest
// limit of its cgroup (v1 or v2) and that cgroup's ancestors. A limit that cannot be read or parsed
// does not count. 0: nothing could be read. `root` is put before /proc and /sys, for tests.
std::uint64_t MemoryLimitBytes(const std::string& root = "");

}  // namespace forebay::tier
