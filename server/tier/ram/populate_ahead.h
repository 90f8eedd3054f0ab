// PopulateAhead: lets the kernel populate the next pages of an arena before anybody waits for them.
// The first touch of a page costs the time to zero it and, in a virtual machine, the time in which
// the host finds the memory. Without it a first batch waited 10 to 28 ms for pages of its slot, and
// extents of a tar shard were gathered at 0.3 to 1.5 GB/s, too slowly to keep reads in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "proto/contract/shared_mapping.h"
#include "proto/contract/thread_annotations.h"
#include "server/tier/ram/huge_pages.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::tier {

// Thread-safe. Its one thread sleeps while enough pages are populated.
// If the kernel refuses (older than 5.14, or memory is short), it stops for good: pages are then
// populated when they are touched, which is slower but correct.
class PopulateAhead {
 public:
  // Bytes per call of the kernel: a huge page.
  static constexpr std::uint64_t kStepBytes = kHugePageBytes;

  // Keeps up to `ahead_bytes` (above 0) populated beyond the highest block of each region of
  // `regions`, in pages that are huge if `pages` can make them so. Borrows both. Regions without a
  // block are not populated, nor are reserved pages, which exist from the start.
  PopulateAhead(std::span<const SharedRegion> regions, HugePages& pages,
                std::uint64_t ahead_bytes);
  ~PopulateAhead();
  PopulateAhead(const PopulateAhead&) = delete;
  PopulateAhead& operator=(const PopulateAhead&) = delete;

  // A block of `region` (an index) ends at `end_bytes`, at most the region's size. Returns at once.
  void Reach(std::size_t region, std::uint64_t end_bytes);
  // Blocks until all that earlier calls of Reach require is populated, or the kernel has refused.
  void Drain();
  // Bytes that this object has populated, in all regions.
  std::uint64_t populated_bytes() const;

 private:
  struct Progress {
    std::uint64_t done = 0;    // all below is populated, or is left to its first touch
    std::uint64_t wanted = 0;  // all below is to be populated
  };

  void Run();
  Progress* NextLocked() FOREBAY_REQUIRES(mutex_);

  const std::span<const SharedRegion> regions_;
  HugePages& pages_;
  const std::uint64_t ahead_bytes_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Progress> progress_ FOREBAY_GUARDED_BY(mutex_);  // by region
  std::uint64_t populated_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  bool refused_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: started when everything else is there
};

}  // namespace forebay::tier
