// PopulateAhead: has the kernel make the next pages of an arena before anybody waits for them.
// The first touch of a page costs its zeroing, and in a virtual machine also the host's finding
// the memory. A first batch took 10 to 28 ms of that in slots, and an extent of a tar shard was
// gathered at 0.3 to 1.5 GB/s while the reads ahead of it ran out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::tier {

// Thread-safe. One thread, of lowest priority, which sleeps while enough pages are ahead. Where
// the kernel refuses (older than 5.14, memory is short) it ends its work: pages are then made as
// they are touched, which is slower and as correct.
class PopulateAhead {
 public:
  static constexpr std::uint64_t kStepBytes = std::uint64_t{2} << 20;  // of one call, a huge page

  // Keeps up to `ahead_bytes` (above 0) populated behind the end of what was reached in a region
  // of `regions`, which are borrowed. No region is begun before something in it is reached.
  PopulateAhead(std::span<const SharedRegion> regions, std::uint64_t ahead_bytes);
  ~PopulateAhead();
  PopulateAhead(const PopulateAhead&) = delete;
  PopulateAhead& operator=(const PopulateAhead&) = delete;

  // What lies below `end_bytes` (at most the region's size) of `region`, an index, is in use or
  // was. Returns at once.
  void Reach(std::size_t region, std::uint64_t end_bytes);
  // Blocks until what the calls of Reach so far ask for is there, or cannot be.
  void Drain();
  // Of all regions, by this object.
  std::uint64_t populated_bytes() const;

 private:
  struct Progress {
    std::uint64_t done = 0;    // below: populated, or in use before it was
    std::uint64_t wanted = 0;  // below: asked for
  };

  void Run();
  Progress* NextLocked() FOREBAY_REQUIRES(mutex_);

  const std::span<const SharedRegion> regions_;
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
