// For tests: how large a program's allocations are. Linked in, it replaces operator new, but
// under sanitizers, where it sees nothing.
#pragma once

#include <cstddef>

namespace forebay::compress {

// Forgets what was allocated before.
void WatchAllocations();
// The largest allocation by operator new since then, in bytes.
std::size_t LargestAllocation();

}  // namespace forebay::compress
