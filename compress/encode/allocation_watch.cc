#include "compress/encode/allocation_watch.h"

#include <atomic>
#include <cstdlib>
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
std::atomic<std::size_t> g_watched_bytes{0}, g_watched{0};
std::atomic<bool> g_fail{false};

}  // namespace

namespace forebay::compress {

void WatchAllocations() { g_largest = 0; }
std::size_t LargestAllocation() { return g_largest; }

void WatchAllocationsOf(std::size_t bytes, bool fail) {
  g_fail = fail;
  g_watched = 0;
  g_watched_bytes = bytes;
}

std::size_t WatchedAllocations() { return g_watched; }

bool CanWatchAllocations() {
#if defined(FOREBAY_TEST_IS_SANITIZED)
  return false;
#else
  return true;
#endif
}

}  // namespace forebay::compress

#if !defined(FOREBAY_TEST_IS_SANITIZED)
void* operator new(std::size_t bytes) {
  std::size_t seen = g_largest;
  while (bytes > seen && !g_largest.compare_exchange_weak(seen, bytes)) {
  }
  if (bytes != 0 && bytes == g_watched_bytes) {
    ++g_watched;
    if (g_fail) throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
