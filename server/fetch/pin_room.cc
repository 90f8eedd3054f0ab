// A count of bytes for each extent, and a queue. One thread at a time serves the queue: a share
// that is given back meanwhile, perhaps within `ready`, only leaves its room to that thread. So a
// long queue of requests that end at once (the daemon stops) does not become a deep recursion.
#include "server/fetch/pin_room.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>
#include <utility>

namespace forebay::fetch {

bool PinRoom::FitsLocked(const std::vector<Pin>& pins, std::uint64_t steps) const {
  // Room that nobody uses takes anything, or a request larger than it could never begin.
  if (used_bytes_ == 0) return true;
  // Requests ahead of need leave half of the room free for those that are needed now.
  const std::uint64_t bound = steps == 0 ? capacity_bytes_ : capacity_bytes_ / 2;
  std::unordered_set<tier::ExtentKey, tier::ExtentKeyHash> added;
  std::uint64_t left = bound - std::min(bound, used_bytes_);
  for (const Pin& pin : pins) {
    if (pinned_.contains(pin.key) || !added.insert(pin.key).second) continue;
    if (pin.bytes > left) return false;
    left -= pin.bytes;
  }
  return true;
}

PinRoom::TakenRef PinRoom::AddLocked(std::vector<Pin> pins) {
  for (const Pin& pin : pins) {
    Pinned& pinned = pinned_[pin.key];
    if (pinned.requests++ > 0) continue;
    pinned.bytes = pin.bytes;
    used_bytes_ += pin.bytes;
  }
  taken_.push_back({.pins = std::move(pins), .since_ns = clock_.NowNs()});
  return std::prev(taken_.end());
}

void PinRoom::SubtractLocked(const std::vector<Pin>& pins) {
  for (const Pin& pin : pins) {
    const auto pinned = pinned_.find(pin.key);
    if (--pinned->second.requests > 0) continue;
    used_bytes_ -= pinned->second.bytes;
    pinned_.erase(pinned);
  }
}

PinRoom::Share PinRoom::ShareOf(TakenRef taken) {
  return {static_cast<const void*>(this), [this, taken](const void*) { Return(taken); }};
}

void PinRoom::Return(TakenRef taken) {
  {
    const MutexLock lock(mutex_);
    if (!taken->is_lent) SubtractLocked(taken->pins);
    taken_.erase(taken);
  }
  Serve();
}

PinRoom::Share PinRoom::TryTake(const Wish& wish, std::uint64_t steps) {
  TakenRef taken;
  {
    const MutexLock lock(mutex_);
    const bool may_begin =
        waiting_.empty() && steps <= wish.steps_max && FitsLocked(wish.pins, steps);
    if (!may_begin) return nullptr;
    taken = AddLocked(wish.pins);
  }
  return ShareOf(taken);
}

void PinRoom::Take(Wish wish, Ready ready) {
  {
    const MutexLock lock(mutex_);
    waiting_.push_back({.wish = std::move(wish), .ready = std::move(ready)});
    waiting_count_ = waiting_.size();
  }
  Serve();
}

// A request whose extents are all pinned by others takes no room, so it begins at once: when an
// extent has come, all batches that need it are made of it. Of the others only the first one is
// looked at, although a later one may be smaller: otherwise small requests could keep a large one
// waiting for ever.
std::optional<PinRoom::Turn> PinRoom::NextLocked() {
  auto next = waiting_.end();
  std::uint64_t soonest = 0;
  bool takes_room = true;
  for (auto each = waiting_.begin(); each != waiting_.end() && takes_room; ++each) {
    Wish& wish = each->wish;
    const std::uint64_t steps = wish.steps ? wish.steps() : 0;
    // Nothing moves the reader of a closed stream any more, so its steps do not fall.
    const bool is_unwanted = wish.is_wanted && !wish.is_wanted();
    if (is_unwanted) wish.pins.clear();
    if (!is_unwanted && steps > wish.steps_max) continue;
    takes_room = std::ranges::any_of(wish.pins, [this](const Pin& pin) FOREBAY_REQUIRES(mutex_) {
      return !pinned_.contains(pin.key);
    });
    if (takes_room && next != waiting_.end() && steps >= soonest) continue;
    next = each;
    soonest = steps;
  }
  if (next == waiting_.end()) return std::nullopt;
  if (takes_room && !FitsLocked(next->wish.pins, soonest)) return std::nullopt;
  Turn turn{.ready = std::move(next->ready),
            .taken = AddLocked(std::move(next->wish.pins)),
            .steps = soonest};
  waiting_.erase(next);
  waiting_count_ = waiting_.size();
  return turn;
}

// A request that begins to wait is counted first, and then its thread calls this function, too. So
// if this call sees no request, that thread sees what has changed: the room, which the mutex
// guards, and the places of the readers, which have a mutex of their own.
void PinRoom::Serve() {
  if (waiting_count_ == 0) return;
  for (bool is_first = true;; is_first = false) {
    std::optional<Turn> turn;
    {
      const MutexLock lock(mutex_);
      if (is_first && is_serving_) return;
      turn = NextLocked();
      is_serving_ = turn.has_value();
    }
    if (!turn) return;
    // Without the mutex, because the share may be given back within the call.
    turn->ready(ShareOf(turn->taken), turn->steps);
  }
}

void PinRoom::LendSharesOf(std::int64_t longer_than_ns) {
  const std::int64_t before_ns = clock_.NowNs() - longer_than_ns;
  {
    const MutexLock lock(mutex_);
    for (Taken& taken : taken_) {
      if (taken.since_ns > before_ns) break;
      if (!std::exchange(taken.is_lent, true)) SubtractLocked(taken.pins);
    }
  }
  Serve();
}

std::uint64_t PinRoom::used_bytes() const {
  const MutexLock lock(mutex_);
  return used_bytes_;
}

bool PinRoom::IsAnyNeededNow() const {
  if (waiting_count_ == 0) return false;
  const MutexLock lock(mutex_);
  return std::ranges::any_of(waiting_, [](const Waiting& each) {
    const bool is_wanted = !each.wish.is_wanted || each.wish.is_wanted();
    return is_wanted && (!each.wish.steps || each.wish.steps() == 0);
  });
}

}  // namespace forebay::fetch
