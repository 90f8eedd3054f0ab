#include "server/stage/request_gate.h"

#include <algorithm>

namespace forebay::stage {

bool RequestGate::MayPassLocked(const Rank& rank) const {
  return free_ > 0 && std::none_of(waiting_.begin(), waiting_.end(), [&](const Rank* other) {
           return other->load(std::memory_order_relaxed) < rank.load(std::memory_order_relaxed);
         });
}

void RequestGate::Acquire(const Rank& rank) {
  std::unique_lock lock(mutex_);
  if (!MayPassLocked(rank)) {
    waiting_.push_back(&rank);
    changed_.wait(lock, [&] { return MayPassLocked(rank); });
    std::erase(waiting_, &rank);
    // Another permit may be free for who comes next.
    changed_.notify_all();
  }
  --free_;
}

bool RequestGate::TryAcquire(const Rank& rank) {
  std::lock_guard lock(mutex_);
  if (!MayPassLocked(rank)) return false;
  --free_;
  return true;
}

void RequestGate::Release() {
  {
    std::lock_guard lock(mutex_);
    ++free_;
  }
  changed_.notify_all();
}

void RequestGate::Promote(Rank& rank, std::uint64_t value) {
  {
    std::lock_guard lock(mutex_);
    if (rank.load(std::memory_order_relaxed) <= value) return;
    rank.store(value, std::memory_order_relaxed);
  }
  changed_.notify_all();
}

std::size_t RequestGate::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace forebay::stage
