// Threads wait on one condition variable, and each decides for itself whether it is next, as in
// RequestGate: there are few of them, and a promotion or a loan may change the answer for any.
#include "server/stage/gfs/gfs_throttle.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::stage {
namespace {

// How often a waiting thread looks whether it is next: nobody wakes it when a priority has changed.
constexpr std::int64_t kLookNs = 20'000'000;
constexpr std::int64_t kShortestWaitNs = 100'000;

}  // namespace

GfsThrottle::Caller::Caller(GfsThrottle* throttle, const Priority& priority)
    : throttle_(throttle) {
  if (throttle_ == nullptr) return;
  const MutexLock lock(throttle_->mutex_);
  FOREBAY_CHECK(throttle_->callers_.try_emplace(std::this_thread::get_id(), &priority).second);
}

GfsThrottle::Caller::~Caller() {
  if (throttle_ == nullptr) return;
  const MutexLock lock(throttle_->mutex_);
  throttle_->callers_.erase(std::this_thread::get_id());
}

void GfsThrottle::Begin(const CapShareOptions& options) {
  const MutexLock lock(mutex_);
  FOREBAY_CHECK(!share_);
  share_.emplace(options, clock_.NowNs());
}

const Priority* GfsThrottle::PriorityOfThread() const {
  const auto found = callers_.find(std::this_thread::get_id());
  return found == callers_.end() ? nullptr : found->second;
}

bool GfsThrottle::IsNext(const Waiter& waiter, std::uint64_t number) const {
  const auto value = [](const Waiter& of) {
    return of.priority == nullptr ? kCataloguePriority
                                  : of.priority->load(std::memory_order_relaxed);
  };
  const std::pair own(value(waiter), number);
  return std::ranges::none_of(waiters_, [&](const auto& other) {
    return other.second.cap == waiter.cap && std::pair(value(other.second), other.first) < own;
  });
}

bool GfsThrottle::MayPass(const Waiter& waiter, std::uint64_t number, double amount) {
  if (stopping_ || !share_ || !share_->IsCapped(waiter.cap)) return true;
  return IsNext(waiter, number) && share_->CanTake(waiter.cap, amount, clock_.NowNs());
}

void GfsThrottle::CountWait(Waiter& waiter, std::int64_t now_ns) {
  share_->AddWait(waiter.cap, now_ns - waiter.counted_ns);
  waiter.counted_ns = now_ns;
}

Status GfsThrottle::AwaitTurn(Cap cap, double amount) {
  const std::uint64_t number = next_number_++;
  Waiter arrived{.cap = cap,
                 .priority = PriorityOfThread(),
                 .thread = std::this_thread::get_id()};
  if (!MayPass(arrived, number, amount)) {
    arrived.since_ns = arrived.counted_ns = clock_.NowNs();
    Waiter& waiter = waiters_.emplace(number, arrived).first->second;
    while (!MayPass(waiter, number, amount)) {
      std::int64_t wait_ns = kLookNs;
      if (IsNext(waiter, number)) {
        wait_ns = std::clamp(share_->NsUntil(cap, amount, clock_.NowNs()), kShortestWaitNs,
                             kLookNs);
      }
      changed_.WaitFor(mutex_, std::chrono::nanoseconds(wait_ns));
    }
    CountWait(waiter, clock_.NowNs());
    waiters_.erase(number);
    changed_.NotifyAll();
  }
  if (!stopping_) return {};
  return Error(ErrorCode::kCancelled, "the daemon is shutting down");
}

Status GfsThrottle::Take(Cap cap, double amount) {
  const MutexLock lock(mutex_);
  FOREBAY_TRY(AwaitTurn(cap, amount));
  if (share_) share_->Take(cap, amount, clock_.NowNs());
  return {};
}

void GfsThrottle::Await(Cap cap, double amount) {
  const MutexLock lock(mutex_);
  static_cast<void>(AwaitTurn(cap, amount));
}

bool GfsThrottle::HasRoom(Cap cap, double amount) {
  const MutexLock lock(mutex_);
  return MayPass({.cap = cap, .priority = PriorityOfThread(), .thread = {}}, next_number_,
                 amount);
}

void GfsThrottle::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
}

std::vector<std::thread::id> GfsThrottle::WaitingThreads(std::int64_t longer_than_ns) const {
  const MutexLock lock(mutex_);
  const std::int64_t before_ns = clock_.NowNs() - longer_than_ns;
  std::vector<std::thread::id> threads;
  for (const auto& [number, waiter] : waiters_) {
    if (waiter.since_ns <= before_ns) threads.push_back(waiter.thread);
  }
  return threads;
}

std::vector<CapShare::Ask> GfsThrottle::Tick(const std::function<bool(NodeRank)>& lives) {
  const MutexLock lock(mutex_);
  if (!share_) return {};
  const std::int64_t now_ns = clock_.NowNs();
  // Waits that go on count, too: a wait may take longer than the time between two calls.
  for (auto& [number, waiter] : waiters_) CountWait(waiter, now_ns);
  return share_->Tick(now_ns, lives);
}

CapRates GfsThrottle::Lend(NodeRank borrower, const CapRates& wanted) {
  const MutexLock lock(mutex_);
  return share_ ? share_->Lend(borrower, wanted, clock_.NowNs()) : CapRates{};
}

void GfsThrottle::Borrowed(NodeRank lender, const CapRates& granted, std::int64_t asked_ns) {
  {
    const MutexLock lock(mutex_);
    if (!share_) return;
    share_->Borrowed(lender, granted, asked_ns, clock_.NowNs());
  }
  changed_.NotifyAll();
}

CapShare::Figures GfsThrottle::figures(Cap cap) const {
  const MutexLock lock(mutex_);
  return share_ ? share_->figures(cap, clock_.NowNs()) : CapShare::Figures{};
}

}  // namespace forebay::stage
