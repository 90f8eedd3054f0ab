// PagePopulator: maps the pages of shared memory that batches lie in before a trainer's thread
// reads them. The first pass over a mapping otherwise takes a page fault every 64 KiB (where the
// system has no huge pages for shared memory), on the thread that should compute.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "client/connection/region_map.h"
#include "proto/contract/shared_mapping.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/wire_layout.h"

namespace forebay::internal {

// Thread-safe. One thread, which sleeps once everything wanted is mapped.
class PagePopulator {
 public:
  // Memory is populated in aligned windows of this size: a huge page, and twice as fast as the
  // faults it replaces. Windows reach over what was asked for, so at most this much on either
  // side of an extent comes into being that nobody reads; never beyond the region's size.
  static constexpr std::uint64_t kWindowBytes = kHugePageBytes;

  explicit PagePopulator(std::shared_ptr<const RegionMap> regions);
  ~PagePopulator();

  // Asks for the pages of `span`, which RegionMap::Find knows. Returns at once; a window is
  // populated once in a mapping's life.
  void Want(const WireSpan& span);
  // Blocks until what was wanted before the call is mapped, or cannot be.
  void Drain();
  // Windows populated so far.
  std::uint64_t windows() const { return windows_.load(std::memory_order_relaxed); }

 private:
  struct Window {
    std::uint32_t region = 0;
    std::uint64_t index = 0;
  };
  // A bit per window: it has been wanted.
  struct Wanted {
    std::unique_ptr<std::atomic<std::uint64_t>[]> words;
  };

  void Run();
  bool Populate(const Window& window);

  const std::shared_ptr<const RegionMap> regions_;
  std::vector<Wanted> wanted_;  // by region
  std::atomic<bool> refused_ = false;  // by the kernel: older than 5.14
  std::atomic<std::uint64_t> windows_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Window> queue_ FOREBAY_GUARDED_BY(mutex_);
  bool busy_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace forebay::internal
