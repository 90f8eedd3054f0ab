// As many chains of calls run as calls may be under way. A chain goes on where its call has ended:
// in the thread that ends the call, or, if that was done before the call has returned, in the
// thread that made it. So calls that end at once are made in a loop, and not one within the other.
#include "server/daemon/call_round.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "proto/contract/thread_annotations.h"

namespace forebay::daemon {

struct CallRound::Round {
  Round(std::size_t calls, Call make) : count(calls), call(std::move(make)) {}

  // The next call that is to be made; the caller is to call Made for it, and then or before, Ended.
  std::optional<std::size_t> Take() {
    const MutexLock lock(mutex);
    if (is_stopped || next == count) return std::nullopt;
    ++being_made;
    ++under_way;
    return next++;
  }
  void Made() {
    const MutexLock lock(mutex);
    --being_made;
    changed.NotifyAll();
  }
  void HasEnded() {
    const MutexLock lock(mutex);
    --under_way;
  }

  const std::size_t count;
  const Call call;
  Mutex mutex;
  CondVar changed;
  bool is_stopped FOREBAY_GUARDED_BY(mutex) = false;
  std::size_t next FOREBAY_GUARDED_BY(mutex) = 0;
  std::size_t being_made FOREBAY_GUARDED_BY(mutex) = 0;  // `call` has not returned
  std::size_t under_way FOREBAY_GUARDED_BY(mutex) = 0;   // have not ended
};

void CallRound::Begin(std::size_t count, Call call) {
  if (is_stopped_) return;
  round_ = std::make_shared<Round>(count, std::move(call));
  for (std::size_t i = 0; i < std::min(count, at_a_time_); ++i) MakeCalls(round_);
}

// One chain.
void CallRound::MakeCalls(const std::shared_ptr<Round>& round) {
  while (const std::optional<std::size_t> index = round->Take()) {
    // True once `call` has returned, or the call has ended. Whichever of the two happens last finds
    // it true, and makes the next call.
    const auto is_half_done = std::make_shared<std::atomic<bool>>(false);
    round->call(*index, [round, is_half_done] {
      round->HasEnded();
      if (is_half_done->exchange(true)) MakeCalls(round);
    });
    round->Made();
    if (!is_half_done->exchange(true)) return;
  }
}

bool CallRound::is_under_way() const {
  if (round_ == nullptr) return false;
  const MutexLock lock(round_->mutex);
  return round_->under_way > 0 || (!round_->is_stopped && round_->next < round_->count);
}

void CallRound::Stop() {
  is_stopped_ = true;
  if (round_ == nullptr) return;
  UniqueLock lock(round_->mutex);
  round_->is_stopped = true;
  while (round_->being_made > 0) round_->changed.Wait(round_->mutex);
}

}  // namespace forebay::daemon
