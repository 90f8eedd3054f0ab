// Replaces operator new and delete in tests that link it, counts bytes, and makes chosen
// allocations fail. Sanitizers keep their own operators, so nothing is counted under them.
#include "compress/encode/testing/allocation_watch.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

// Sanitizers keep their own operator new; under them nothing is counted.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FOREBAY_TEST_IS_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FOREBAY_TEST_IS_SANITIZED 1
#endif

namespace {

std::atomic<std::size_t> g_largest{0};
std::atomic<std::ptrdiff_t> g_live{0}, g_live_before{0}, g_peak{0};
std::atomic<std::size_t> g_watched_bytes{0}, g_watched{0};
std::atomic<bool> g_fail{false}, g_starve{false}, g_overwrite{false};

}  // namespace

namespace forebay::compress {

void WatchAllocations() {
  g_largest = 0;
  g_live_before = g_peak = g_live.load();
}
std::size_t PeakAllocation() { return static_cast<std::size_t>(g_peak - g_live_before); }
std::size_t LargestAllocation() { return g_largest; }

void WatchAllocationsOf(std::size_t bytes, bool fail) {
  g_fail = fail;
  g_watched = 0;
  g_watched_bytes = bytes;
}

void StarveThreadsAfter(std::size_t bytes) {
  WatchAllocationsOf(bytes, true);
  g_starve = bytes != 0;
}

std::size_t WatchedAllocations() { return g_watched; }

void OverwriteFreedMemory(bool wanted) { g_overwrite = wanted; }

bool CanWatchAllocations() {
#if defined(FOREBAY_TEST_IS_SANITIZED)
  return false;
#else
  return true;
#endif
}

}  // namespace forebay::compress

#if !defined(FOREBAY_TEST_IS_SANITIZED)
namespace {

thread_local bool t_starved = false;

// Under an allocation that outlives the watch, or one before it, the count goes on.
void Count(std::ptrdiff_t bytes) {
  const std::ptrdiff_t live = g_live += bytes;
  std::ptrdiff_t seen = g_peak;
  while (live > seen && !g_peak.compare_exchange_weak(seen, live)) {
  }
}

void Release(void* memory) {
  const std::size_t bytes = malloc_usable_size(memory);
  Count(-static_cast<std::ptrdiff_t>(bytes));
  if (g_overwrite && bytes > 0) {
    std::memset(memory, 0xDD, bytes);
    // Says that the bytes are read; the compiler drops a memset before free otherwise.
    asm volatile("" : : "r"(memory) : "memory");
  }
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  std::size_t seen = g_largest;
  while (bytes > seen && !g_largest.compare_exchange_weak(seen, bytes)) {
  }
  if (bytes != 0 && bytes == g_watched_bytes) {
    ++g_watched;
    t_starved = t_starved || g_starve;
    if (g_fail) throw std::bad_alloc();
  }
  if (t_starved && g_starve) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) {
    Count(static_cast<std::ptrdiff_t>(malloc_usable_size(memory)));
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, std::size_t) noexcept { Release(memory); }
#endif
