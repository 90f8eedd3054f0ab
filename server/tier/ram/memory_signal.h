// MemorySignal: tells threads that wait for memory of the RAM tier when it is worth trying again.
// Whoever may have made memory available calls Notify: the arena after it freed a block, the last
// reader of an extent, which may be evicted from then on, and the streams after they changed when
// extents are needed next. The waiting threads then try one after another, so that one change does
// not start all of them at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/contract/thread_annotations.h"

namespace forebay::tier {

// Thread-safe. Outlives its waiters.
class MemorySignal {
 public:
  // Call it after the change, with any mutexes held: it locks its own one at most, and calls
  // nothing under it. Costs one load of an atomic while nobody waits.
  void Notify() {
    if (waiting_.load() != 0) NotifyWaiting();
  }
  // The number of waiters, for tests.
  std::size_t waiting() const { return waiting_.load(); }

  // One request for memory, made before its first try:
  //
  //   MemorySignal::Waiter waiter(signal);
  //   for (;;) {
  //     auto block = Try();
  //     if (block.has_value() || !waiter.Await(deadline)) return block;
  //   }
  //
  // Used by one thread.
  class Waiter {
   public:
    using Deadline = std::chrono::steady_clock::time_point;

    explicit Waiter(MemorySignal& signal);
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    // Waits for a change since the last try began, and for this waiter's turn. True: try again.
    // False: the deadline has passed.
    bool Await(Deadline deadline);

   private:
    friend class MemorySignal;
    MemorySignal& signal_;
    CondVar wake_;
    // Guarded by signal_.mutex_.
    std::uint64_t seen_ = 0;  // changes_ when the last try began
    bool is_ready_ = false;   // waits for its turn
  };

 private:
  void NotifyWaiting() FOREBAY_EXCLUDES(mutex_);
  void GiveTurn() FOREBAY_REQUIRES(mutex_);
  void EndTurn(const Waiter& waiter) FOREBAY_REQUIRES(mutex_);

  std::atomic<std::size_t> waiting_ = 0;  // waiters_.size()
  Mutex mutex_;                           // taken last: nothing is locked while it is held
  std::uint64_t changes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::vector<Waiter*> waiters_ FOREBAY_GUARDED_BY(mutex_);  // in the order in which they came
  Waiter* turn_ FOREBAY_GUARDED_BY(mutex_) = nullptr;        // the one that tries now, after a wait
};

}  // namespace forebay::tier
