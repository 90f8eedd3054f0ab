// For tests: measures a program's allocations and makes some of them fail. Linking it replaces
// operator new, except under sanitizers, where it sees nothing.
#pragma once

#include <cstddef>

namespace forebay::compress {

// False under sanitizers: then nothing below has any effect.
bool CanWatchAllocations();

// Forgets what was allocated before.
void WatchAllocations();
// The largest allocation by operator new since then, in bytes.
std::size_t LargestAllocation();
// The most that was allocated by operator new at one time since then, beyond what was at that time.
std::size_t PeakAllocation();

// From now on allocations of exactly so many bytes are counted, and fail if so asked; 0: none.
void WatchAllocationsOf(std::size_t bytes, bool fail);
// From now on an allocation of exactly so many bytes fails, and so does every later one of the
// thread that asked for it; 0: none. Not for the thread that calls this.
void StarveThreadsAfter(std::size_t bytes);
// How many there were since then.
std::size_t WatchedAllocations();

// Whether memory is filled with 0xDD before operator delete frees it. Who still uses it then reads
// values that nobody wrote, and does so every time, not only where the memory has a new owner.
void OverwriteFreedMemory(bool wanted);

}  // namespace forebay::compress
