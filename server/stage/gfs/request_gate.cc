// A place is one of `permits` in use. Threads wait on one condition variable and each decides for
// itself whether it is next (TryTakeLocked): there are few of them, and Promote and LendPlacesOf
// may change the answer for any. Lending moves a permit from held_ to lent_ and frees its place.
#include "server/stage/gfs/request_gate.h"

#include <algorithm>
#include <chrono>

#include "proto/contract/check.h"
#include "server/stage/gfs/gfs_throttle.h"

namespace forebay::stage {

RequestGate::RequestGate(std::uint32_t permits, io::Clock& clock, std::size_t lent_max,
                         GfsThrottle* caps)
    : clock_(clock), caps_(caps), free_(permits), lent_max_(lent_max) {
  FOREBAY_CHECK(caps == nullptr || lent_max == 0);
}

// A request of a group with a lent place waits, and others need not wait for it: it would only add
// a thread to those that the object blocks. The cap of the job is asked last, for a request that
// would begin otherwise, because with nothing left of its share the node borrows.
std::optional<RequestGate::Permit> RequestGate::TryTakeLocked(const Priority& priority,
                                                              Group group) {
  if (free_ == 0 || lent_of_.contains(group)) return std::nullopt;
  const std::uint64_t own = priority.load(std::memory_order_relaxed);
  const std::size_t kept = WantedBeforeLocked(own);
  const bool goes_after_another =
      std::ranges::any_of(waiting_, [&](const Waiter& other) FOREBAY_REQUIRES(mutex_) {
        return other.priority->load(std::memory_order_relaxed) < own &&
               !lent_of_.contains(other.group);
      });
  if (free_ <= kept || goes_after_another) return std::nullopt;
  if (caps_ != nullptr && !caps_->TryBeginRequest(kept)) return std::nullopt;
  --free_;
  // Numbers of permits only grow and are never used again, so held_ is ordered by begin.
  held_[next_permit_] = {.since_ns = clock_.NowNs(), .group = group};
  return next_permit_++;
}

// Returns how many free places are kept from a request of this priority.
std::size_t RequestGate::WantedBeforeLocked(std::uint64_t priority) const {
  if (wanted_.empty()) return 0;
  const std::int64_t hold_ms =
      priority < kBackgroundPriority ? kHoldBackDemandsMs : kHoldBackMs;
  const std::int64_t before_ns = clock_.NowNs() - hold_ms * 1'000'000;
  const std::uint64_t below = std::min(priority, kBackgroundPriority);
  std::size_t requests = 0;
  for (const auto& [number, wanted] : wanted_) {
    const bool counts = wanted.priority->load(std::memory_order_relaxed) < below &&
                        wanted.since_ns > before_ns && !lent_of_.contains(wanted.group);
    if (counts) requests += wanted.requests;
  }
  return requests;
}

RequestGate::Want::Want(RequestGate& gate, const Priority& priority, Group group)
    : gate_(gate), number_([&] {
        const MutexLock lock(gate.mutex_);
        gate.wanted_[gate.next_want_] = {
            .priority = &priority, .group = group, .requests = 0,
            .since_ns = gate.clock_.NowNs()};
        return gate.next_want_++;
      }()) {}

RequestGate::Want::~Want() {
  {
    const MutexLock lock(gate_.mutex_);
    gate_.wanted_.erase(number_);
  }
  gate_.changed_.NotifyAll();
}

void RequestGate::Want::Set(std::size_t requests) {
  bool wants_less = false;
  {
    const MutexLock lock(gate_.mutex_);
    Wanted& wanted = gate_.wanted_[number_];
    wants_less = requests < wanted.requests;
    wanted.requests = requests;
  }
  if (wants_less) gate_.changed_.NotifyAll();
}

void RequestGate::Want::Renew(std::size_t requests) {
  const MutexLock lock(gate_.mutex_);
  Wanted& wanted = gate_.wanted_[number_];
  // It wants one less than before, and the permit has taken one, so nobody else may pass now.
  wanted.requests = requests;
  wanted.since_ns = gate_.clock_.NowNs();
}

RequestGate::Permit RequestGate::Acquire(const Priority& priority, Group group) {
  const MutexLock lock(mutex_);
  std::optional<Permit> permit = TryTakeLocked(priority, group);
  if (!permit) {
    // With a cap no place is lent, so this wait may last as long as the GFS does not answer others.
    const GfsThrottle::RequestWait wait(caps_);
    waiting_.push_back(
        {.priority = &priority, .group = group, .thread = std::this_thread::get_id()});
    while (!(permit = TryTakeLocked(priority, group))) {
      // Nobody wakes this thread when a Want is too old to keep places from it, or when the node's
      // share of the cap has grown.
      if (free_ > 0 && (!wanted_.empty() || caps_ != nullptr)) {
        changed_.WaitFor(mutex_, std::chrono::milliseconds(kHoldBackDemandsMs));
      } else {
        changed_.Wait(mutex_);
      }
    }
    std::erase_if(waiting_, [&](const Waiter& waiter) {
      return waiter.priority == &priority && waiter.thread == std::this_thread::get_id();
    });
    // This thread no longer waits, so the next one may pass if another place is free.
    changed_.NotifyAll();
  }
  return *permit;
}

std::optional<RequestGate::Permit> RequestGate::TryAcquire(const Priority& priority, Group group) {
  const MutexLock lock(mutex_);
  // A free place is not enough: a waiter of a smaller rank is not overtaken.
  return TryTakeLocked(priority, group);
}

void RequestGate::Release(Permit permit) {
  {
    const MutexLock lock(mutex_);
    if (const auto lent = lent_.find(permit); lent != lent_.end()) {
      // Its place was lent to another request, so no place becomes free; but its group may
      // continue.
      const auto of_group = lent_of_.find(lent->second);
      if (--of_group->second == 0) lent_of_.erase(of_group);
      lent_.erase(lent);
    } else {
      FOREBAY_CHECK(held_.erase(permit) > 0);
      ++free_;
      if (caps_ != nullptr) caps_->EndRequest();
    }
  }
  changed_.NotifyAll();
}

void RequestGate::LendPlacesOf(std::int64_t longer_than_ns) {
  const std::int64_t before_ns = clock_.NowNs() - longer_than_ns;
  bool may_pass = false;
  {
    const MutexLock lock(mutex_);
    // Permits are numbered in the order of their begin, so the oldest comes first.
    while (!held_.empty() && held_.begin()->second.since_ns <= before_ns &&
           lent_.size() < lent_max_) {
      const auto& [permit, request] = *held_.begin();
      lent_[permit] = request.group;
      ++lent_of_[request.group];
      held_.erase(held_.begin());
      ++free_;
      may_pass = true;
    }
  }
  if (may_pass) changed_.NotifyAll();
}

std::size_t RequestGate::lent() const {
  const MutexLock lock(mutex_);
  return lent_.size();
}

std::vector<std::thread::id> RequestGate::BlockedThreads() const {
  const MutexLock lock(mutex_);
  std::vector<std::thread::id> threads;
  for (const Waiter& waiter : waiting_) {
    if (lent_of_.contains(waiter.group)) threads.push_back(waiter.thread);
  }
  return threads;
}

void RequestGate::Promote(Priority& priority, std::uint64_t value) {
  {
    const MutexLock lock(mutex_);
    // Several readers may promote one request. The smallest rank stays.
    if (priority.load(std::memory_order_relaxed) <= value) return;
    priority.store(value, std::memory_order_relaxed);
  }
  changed_.NotifyAll();
}

std::size_t RequestGate::waiting() const {
  const MutexLock lock(mutex_);
  return waiting_.size();
}

}  // namespace forebay::stage
