// Each thread waits on a condition variable of its own. For each cap, the thread that is next looks
// again and again whether there is enough for it, and whether it is still next, because nobody says
// when a priority has changed. It wakes the one that has taken its place. So of many threads only
// one is woken at a time.
#include "server/stage/gfs/gfs_throttle.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::stage {
namespace {

// How often the thread that is next looks at least.
constexpr std::int64_t kLookNs = 20'000'000;
constexpr std::int64_t kShortestWaitNs = 100'000;
// How often any other thread looks, in case that the one that is next has become another one while
// nobody looked.
constexpr std::int64_t kOtherLooksNs = 1'000'000'000;

}  // namespace

GfsThrottle::Caller::Caller(GfsThrottle* throttle, const Priority& priority)
    : throttle_(throttle != nullptr && throttle->IsAnyCapped() ? throttle : nullptr) {
  if (throttle_ == nullptr) return;
  const MutexLock lock(throttle_->mutex_);
  const CallerState state{.priority = &priority};
  FOREBAY_CHECK(throttle_->callers_.try_emplace(std::this_thread::get_id(), state).second);
}

GfsThrottle::Caller::~Caller() {
  if (throttle_ == nullptr) return;
  const MutexLock lock(throttle_->mutex_);
  throttle_->callers_.erase(std::this_thread::get_id());
}

GfsThrottle::RequestWait::RequestWait(GfsThrottle* throttle)
    : throttle_(throttle != nullptr && throttle->are_requests_capped_ ? throttle : nullptr) {
  if (throttle_ == nullptr) return;
  const MutexLock lock(throttle_->mutex_);
  const std::int64_t since_ns = throttle_->WaitsSinceNs();
  FOREBAY_CHECK(
      throttle_->request_waits_.try_emplace(std::this_thread::get_id(), since_ns).second);
}

GfsThrottle::RequestWait::~RequestWait() {
  if (throttle_ == nullptr) return;
  const MutexLock lock(throttle_->mutex_);
  const auto wait = throttle_->request_waits_.find(std::this_thread::get_id());
  throttle_->NoteWaited(wait->second);
  throttle_->request_waits_.erase(wait);
}

void GfsThrottle::Begin(const CapShareOptions& options) {
  const MutexLock lock(mutex_);
  FOREBAY_CHECK(!share_);
  share_.emplace(options, clock_.NowNs());
  for (const Cap cap : kCaps) is_capped_[static_cast<std::size_t>(cap)] = share_->IsCapped(cap);
  are_requests_capped_ = share_->requests().IsCapped();
}

std::int64_t GfsThrottle::WaitsSinceNs() const {
  const auto caller = callers_.find(std::this_thread::get_id());
  return clock_.NowNs() - (caller == callers_.end() ? 0 : caller->second.waited_ns);
}

void GfsThrottle::NoteWaited(std::int64_t since_ns) {
  const auto caller = callers_.find(std::this_thread::get_id());
  if (caller != callers_.end()) caller->second.waited_ns = clock_.NowNs() - since_ns;
}

GfsThrottle::Waiter GfsThrottle::WaiterOfThread(Cap cap) const {
  Waiter waiter{.cap = cap,
                .thread = std::this_thread::get_id(),
                .since_ns = WaitsSinceNs(),
                .counted_ns = clock_.NowNs()};
  if (const auto found = callers_.find(waiter.thread); found != callers_.end()) {
    waiter.priority = found->second.priority;
  }
  return waiter;
}

// Priorities are compared at each look, because a promotion may change them while threads wait.
// In a turn by age, all but background work is equally urgent.
std::pair<std::uint64_t, std::uint64_t> GfsThrottle::OrderOf(const Waiter& waiter,
                                                             std::uint64_t number) const {
  const std::uint64_t priority = waiter.priority == nullptr
                                     ? kCataloguePriority
                                     : waiter.priority->load(std::memory_order_relaxed);
  const std::uint64_t turn = turns_[static_cast<std::size_t>(waiter.cap)];
  const bool is_by_age = turn % kTurnsByAge == kTurnsByAge - 1;
  return {is_by_age && priority < kBackgroundPriority ? 0 : priority, number};
}

// Waits for bytes and for opens do not hold up each other.
GfsThrottle::Waiters::const_iterator GfsThrottle::First(Cap cap) const {
  auto first = waiters_.end();
  for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
    if (it->second.cap != cap) continue;
    const bool is_first = first == waiters_.end() ||
                          OrderOf(it->second, it->first) < OrderOf(first->second, first->first);
    if (is_first) first = it;
  }
  return first;
}

bool GfsThrottle::IsNext(const Waiter& waiter, std::uint64_t number) const {
  const auto first = First(waiter.cap);
  return first == waiters_.end() ||
         OrderOf(waiter, number) <= OrderOf(first->second, first->first);
}

void GfsThrottle::WakeFirst(Cap cap) {
  if (const auto first = First(cap); first != waiters_.end()) first->second.turn->NotifyOne();
}

// A waiter that is not next does not pass, although there may be enough for it: otherwise small
// calls would keep a large one waiting for ever.
bool GfsThrottle::MayPass(const Waiter& waiter, std::uint64_t number, double amount) {
  if (stopping_) return true;
  return IsNext(waiter, number) && share_->CanTake(waiter.cap, amount, clock_.NowNs());
}

void GfsThrottle::CountWait(Waiter& waiter, std::int64_t now_ns) {
  share_->AddWait(waiter.cap, now_ns - waiter.counted_ns);
  waiter.counted_ns = now_ns;
}

// Only for what is capped.
Status GfsThrottle::AwaitTurn(Cap cap, double amount, GfsCalls::Call* under_way) {
  // Of equal priority, the one that came first goes first.
  const std::uint64_t number = next_number_++;
  const Waiter arrived = WaiterOfThread(cap);
  if (!MayPass(arrived, number, amount)) {
    CondVar turn;
    Waiter& waiter = waiters_.emplace(number, arrived).first->second;
    waiter.turn = &turn;
    // The GFS is not late with a call that has not been sent.
    if (under_way != nullptr) under_way->Hold();
    for (bool was_woken = false; !MayPass(waiter, number, amount); was_woken = true) {
      // Looked at once: a promotion changes priorities without the mutex, and two looks that differ
      // could leave nobody who looks.
      const auto first = First(cap);
      std::int64_t wait_ns = kOtherLooksNs;
      if (first->first == number) {
        wait_ns =
            std::clamp(share_->NsUntil(cap, amount, clock_.NowNs()), kShortestWaitNs, kLookNs);
      } else if (was_woken) {
        // It was next before, or was taken for it. When it arrives, another thread looks already.
        first->second.turn->NotifyOne();
      }
      turn.WaitFor(mutex_, std::chrono::nanoseconds(wait_ns));
    }
    if (under_way != nullptr) under_way->GoOn();
    CountWait(waiter, clock_.NowNs());
    NoteWaited(waiter.since_ns);
    waiters_.erase(number);
  }
  if (!stopping_) return {};
  return Error(ErrorCode::kCancelled, "the daemon is shutting down");
}

Status GfsThrottle::Take(Cap cap, double amount, GfsCalls::Call* under_way) {
  if (!IsCapped(cap)) return {};
  const MutexLock lock(mutex_);
  FOREBAY_TRY(AwaitTurn(cap, amount, under_way));
  share_->Take(cap, amount, clock_.NowNs());
  ++turns_[static_cast<std::size_t>(cap)];
  WakeFirst(cap);
  return {};
}

// After Stop the caller finds out by its next Take, so the error is dropped here.
void GfsThrottle::Await(Cap cap, double amount) {
  if (!IsCapped(cap)) return;
  const MutexLock lock(mutex_);
  static_cast<void>(AwaitTurn(cap, amount, nullptr));
  WakeFirst(cap);
}

bool GfsThrottle::HasRoom(Cap cap, double amount) {
  if (!IsCapped(cap)) return true;
  const MutexLock lock(mutex_);
  return MayPass(WaiterOfThread(cap), next_number_, amount);
}

bool GfsThrottle::TryBeginRequest(std::size_t kept) {
  if (!are_requests_capped_) return true;
  const MutexLock lock(mutex_);
  return share_->requests().TryBegin(kept, clock_.NowNs());
}

void GfsThrottle::EndRequest() {
  if (!are_requests_capped_) return;
  const MutexLock lock(mutex_);
  share_->requests().End();
}

void GfsThrottle::Stop() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  for (const auto& [number, waiter] : waiters_) waiter.turn->NotifyOne();
}

bool GfsThrottle::HasWaiters() const {
  if (!IsAnyCapped()) return false;
  const MutexLock lock(mutex_);
  return !waiters_.empty() || !request_waits_.empty();
}

std::vector<std::thread::id> GfsThrottle::WaitingThreads(std::int64_t longer_than_ns) const {
  const MutexLock lock(mutex_);
  const std::int64_t before_ns = clock_.NowNs() - longer_than_ns;
  std::vector<std::thread::id> threads;
  for (const auto& [number, waiter] : waiters_) {
    if (waiter.since_ns <= before_ns) threads.push_back(waiter.thread);
  }
  for (const auto& [thread, since_ns] : request_waits_) {
    if (since_ns <= before_ns) threads.push_back(thread);
  }
  // Many short waits hold up what is behind a thread as much as a long one.
  for (const auto& [thread, caller] : callers_) {
    const bool has_waited = caller.waited_ns > longer_than_ns;
    if (has_waited && std::ranges::find(threads, thread) == threads.end()) {
      threads.push_back(thread);
    }
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

ShareAnswer GfsThrottle::Answer(NodeRank from, const ShareAsk& ask) {
  const MutexLock lock(mutex_);
  return share_ ? share_->Answer(from, ask, clock_.NowNs()) : ShareAnswer{};
}

void GfsThrottle::Answered(NodeRank node, const ShareAsk& ask, const ShareAnswer& answer,
                           std::int64_t asked_ns) {
  const MutexLock lock(mutex_);
  if (!share_) return;
  share_->Answered(node, ask, answer, asked_ns, clock_.NowNs());
  for (const Cap cap : kCaps) WakeFirst(cap);
}

CapShare::Held GfsThrottle::held() const {
  const MutexLock lock(mutex_);
  return share_ ? share_->held(clock_.NowNs()) : CapShare::Held{};
}

CapShare::Figures GfsThrottle::figures(Cap cap) const {
  const MutexLock lock(mutex_);
  return share_ ? share_->figures(cap, clock_.NowNs()) : CapShare::Figures{};
}

RequestShare::Figures GfsThrottle::request_figures() const {
  const MutexLock lock(mutex_);
  return share_ ? share_->requests().figures(clock_.NowNs()) : RequestShare::Figures{};
}

}  // namespace forebay::stage
