// ResidentWalk: visits extents of a cache in short steps. It holds the cache's lock for one step at
// a time, because every batch looks extents up under that lock, and a cache may hold many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/contract/mix64.h"
#include "proto/contract/thread_annotations.h"
#include "server/tier/resident_index.h"

namespace forebay::tier {

// Thread-safe.
class ResidentWalk {
 public:
  using Node = ResidentIndex::Node;

  // Borrowed; `mutex` guards `index`.
  ResidentWalk(Mutex& mutex, const ResidentIndex& index) : mutex_(mutex), index_(index) {}

  // Calls visit(node), under the lock, for every extent that is there from the beginning of the
  // walk to its end. An extent that comes or goes meanwhile may be visited once, twice or not at
  // all.
  template <typename Visit>
  void VisitAll(const Visit& visit) const FOREBAY_EXCLUDES(mutex_) {
    std::size_t left = ~std::size_t{0};
    do {
      const MutexLock lock(mutex_);
      // Extents whose number is `left` or more have been visited (ResidentIndex::at).
      left = std::min(left, index_.size());
      for (std::size_t step = 0; step < kStepExtents && left > 0; ++step) visit(index_.at(--left));
    } while (left > 0);
  }

  // Calls visit(node), under the lock, for `count` extents, each chosen at random from all.
  template <typename Visit>
  void VisitRandom(std::size_t count, const Visit& visit) const FOREBAY_EXCLUDES(mutex_) {
    while (count > 0) {
      const MutexLock lock(mutex_);
      const std::size_t size = index_.size();
      if (size == 0) return;
      for (std::size_t step = 0; step < kStepExtents && count > 0; ++step, --count) {
        visit(index_.at(NextWord64(random_state_) % size));
      }
    }
  }

  std::size_t size() const FOREBAY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return index_.size();
  }

 private:
  static constexpr std::size_t kStepExtents = 64;

  Mutex& mutex_;
  const ResidentIndex& index_ FOREBAY_GUARDED_BY(mutex_);
  mutable std::uint64_t random_state_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of NextWord64
};

}  // namespace forebay::tier
