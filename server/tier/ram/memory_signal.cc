// No change is missed. A waiter is counted before its first try. So either the try sees the change,
// or the thread that made the change sees the count, and the waiter finds changes_ increased
// afterwards. (Memory that is guarded by a mutex gives this order; counts that are not, such as the
// pins of an extent, are sequentially consistent, as waiting_ is.) After each change every waiter
// tries once: the turn goes to the waiter whose last try began longest ago.
#include "server/tier/ram/memory_signal.h"

#include <algorithm>

namespace forebay::tier {
namespace {

// Between two tries of a waiter. While batches are read, extents are pinned and unpinned thousands
// of times a second, and each try may look at all extents of the cache.
constexpr auto kRest = std::chrono::milliseconds(5);

}  // namespace

void MemorySignal::NotifyWaiting() {
  const MutexLock lock(mutex_);
  ++changes_;
  GiveTurn();
}

// Lets the next waiter try, unless one is trying now: that one passes the turn on when it has
// ended.
void MemorySignal::GiveTurn() {
  if (turn_ != nullptr) return;
  for (Waiter* waiter : waiters_) {
    const bool is_due = waiter->is_ready_ && waiter->seen_ < changes_;
    // Among waiters that tried equally long ago, the first that came wins.
    if (is_due && (turn_ == nullptr || waiter->seen_ < turn_->seen_)) turn_ = waiter;
  }
  if (turn_ != nullptr) turn_->wake_.NotifyOne();
}

void MemorySignal::EndTurn(const Waiter& waiter) {
  if (turn_ == &waiter) turn_ = nullptr;
  GiveTurn();
}

MemorySignal::Waiter::Waiter(MemorySignal& signal) : signal_(signal) {
  const MutexLock lock(signal_.mutex_);
  seen_ = signal_.changes_;
  signal_.waiters_.push_back(this);
  ++signal_.waiting_;
}

MemorySignal::Waiter::~Waiter() {
  const MutexLock lock(signal_.mutex_);
  std::erase(signal_.waiters_, this);
  --signal_.waiting_;
  signal_.EndTurn(*this);
}

bool MemorySignal::Waiter::Await(Deadline deadline) {
  const MutexLock lock(signal_.mutex_);
  signal_.EndTurn(*this);
  const Deadline rested = std::min(deadline, std::chrono::steady_clock::now() + kRest);
  while (std::chrono::steady_clock::now() < rested) wake_.WaitUntil(signal_.mutex_, rested);
  if (rested == deadline) return false;
  is_ready_ = true;
  signal_.GiveTurn();
  while (signal_.turn_ != this) {
    const bool is_late =
        wake_.WaitUntil(signal_.mutex_, deadline) == std::cv_status::timeout;
    // The turn may have come in the same moment, and is used then.
    if (is_late && signal_.turn_ != this) break;
  }
  is_ready_ = false;
  if (signal_.turn_ != this) return false;
  seen_ = signal_.changes_;
  return true;
}

}  // namespace forebay::tier
