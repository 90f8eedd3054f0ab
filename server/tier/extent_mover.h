// ExtentMover: makes one long run of free memory in RAM out of fragments, by moving extents that
// nobody uses (ram/compaction.h plans the moves). The cache calls it before it evicts.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/contract/thread_annotations.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/compaction.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/resident_index.h"
#include "server/tier/resident_walk.h"

namespace forebay::tier {

// Thread-safe. Bytes are moved without the cache's lock.
class ExtentMover {
 public:
  // Borrowed: all, of one cache; `mutex` guards `index`, and `walk` walks through it.
  ExtentMover(RamArena& arena, Mutex& mutex, ResidentIndex& index, const ResidentWalk& walk)
      : arena_(arena), mutex_(mutex), index_(index), walk_(walk) {}

  // Whether a block of `wanted` bytes, whole pages, can be had now, if need be after moves.
  bool MakeRun(std::uint64_t wanted) FOREBAY_EXCLUDES(mutex_);
  // Waits until the move of some extent has ended (Residency::is_moving). `held` is the cache's
  // mutex, which is released meanwhile.
  void AwaitMove(Mutex& held) FOREBAY_REQUIRES(held) { move_ended_.Wait(held); }
  // Extents that were moved since the start.
  std::uint64_t moved() const { return moved_; }

 private:
  bool MakeMove(const Move& move, const ExtentKey& key)
      FOREBAY_REQUIRES(plan_mutex_) FOREBAY_EXCLUDES(mutex_);

  RamArena& arena_;
  // Held while extents are moved, so that one plan is carried out at a time.
  Mutex plan_mutex_ FOREBAY_ACQUIRED_BEFORE(mutex_);
  Mutex& mutex_;  // the cache's
  ResidentIndex& index_ FOREBAY_GUARDED_BY(mutex_);
  const ResidentWalk& walk_;
  CondVar move_ended_;
  std::atomic<std::uint64_t> moved_ = 0;
};

}  // namespace forebay::tier
