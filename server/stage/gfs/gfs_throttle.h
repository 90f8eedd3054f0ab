// GfsThrottle: lets calls to the GFS begin no faster than this node's share of the job's caps
// allows (CapShare). PatientBackend asks it before each try of each call, so nothing that the
// daemon reads from data sets passes by it. Without a cap it does nothing, at the cost of one load.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/stage/gfs/cap_share.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/request_gate.h"

namespace forebay::stage {

// Thread-safe; `clock` is borrowed.
class GfsThrottle {
 public:
  explicit GfsThrottle(io::Clock& clock) : clock_(clock) {}

  // Caps count from now on. To be called once, when the nodes of the job are known; before, calls
  // are not held up.
  void Begin(const CapShareOptions& options);

  // While it exists, calls of its thread have this priority, in the order of RequestGate. Other
  // calls, such as those that build catalogs or ask for sizes for other nodes, come after all
  // demands and before background work. But of kTurnsByAge turns, one goes to the call that has
  // waited longest, unless that is background work, so that demands do not hold up these for ever.
  // One for a thread at a time; both are borrowed. Without effect if `throttle` is null, or nothing
  // is capped yet.
  static constexpr std::uint64_t kTurnsByAge = 4;
  class Caller {
   public:
    Caller(GfsThrottle* throttle, const Priority& priority);
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    GfsThrottle* const throttle_;  // null: without effect
  };
  // While it exists, its thread counts as one that waits: RequestGate has one for each thread that
  // waits there for a request. One for a thread at a time; `throttle` is borrowed. Without effect
  // if that is null, or requests are not capped.
  class RequestWait {
   public:
    explicit RequestWait(GfsThrottle* throttle);
    ~RequestWait();
    RequestWait(const RequestWait&) = delete;
    RequestWait& operator=(const RequestWait&) = delete;

   private:
    GfsThrottle* const throttle_;  // null: without effect
  };

  bool IsCapped(Cap cap) const {
    return is_capped_[static_cast<std::size_t>(cap)].load(std::memory_order_relaxed);
  }
  // Blocks until `amount` may be used, and counts it as used. A call that is under way already is
  // held while it waits. kCancelled after Stop. Returns at once if `cap` is not capped.
  Status Take(Cap cap, double amount, GfsCalls::Call* under_way = nullptr);
  // Blocks until Take would not, and takes nothing. For a thread that should wait before it
  // occupies something that others need. Returns at once after Stop.
  void Await(Cap cap, double amount);
  // Returns whether Await would return at once.
  bool HasRoom(Cap cap, double amount);
  // RequestGate calls these two for each request that it admits, as TryBegin and End of
  // RequestShare. They never wait. No request may be in flight when Begin is called.
  bool TryBeginRequest(std::size_t kept);
  void EndRequest();
  // From now on nothing waits. The cap on requests in flight still holds.
  void Stop();
  // Whether any call, or any RequestWait, waits now.
  bool HasWaiters() const;
  // Threads that have waited for longer than this: in a wait that goes on, or in all waits of their
  // Caller together, while that exists.
  std::vector<std::thread::id> WaitingThreads(std::int64_t longer_than_ns) const;

  // As CapShare; without effect before Begin.
  std::vector<CapShare::Ask> Tick(const std::function<bool(NodeRank)>& lives);
  ShareAnswer Answer(NodeRank from, const ShareAsk& ask);
  void Answered(NodeRank node, const ShareAsk& ask, const ShareAnswer& answer,
                std::int64_t asked_ns);
  CapShare::Held held() const;
  CapShare::Figures figures(Cap cap) const;
  RequestShare::Figures request_figures() const;

 private:
  struct Waiter {
    Cap cap = Cap::kBytes;
    const Priority* priority = nullptr;  // null: that of a caller without one
    std::thread::id thread;
    std::int64_t since_ns = 0;
    std::int64_t counted_ns = 0;  // its wait was added to the share until then
    CondVar* turn = nullptr;      // of its thread; null: it does not wait yet
  };
  // A thread with a Caller.
  struct CallerState {
    const Priority* priority = nullptr;
    std::int64_t waited_ns = 0;  // in waits that have ended
  };
  using Waiters = std::map<std::uint64_t, Waiter>;  // by time of arrival

  bool IsAnyCapped() const {
    return IsCapped(Cap::kBytes) || IsCapped(Cap::kOpens) || are_requests_capped_;
  }
  // Since when a wait of this thread that begins now counts. Earlier waits of its Caller count as
  // if they had ended just now.
  std::int64_t WaitsSinceNs() const FOREBAY_REQUIRES(mutex_);
  // A wait of this thread, which counts since `since_ns`, has ended.
  void NoteWaited(std::int64_t since_ns) FOREBAY_REQUIRES(mutex_);
  Waiter WaiterOfThread(Cap cap) const FOREBAY_REQUIRES(mutex_);
  // The smallest value goes first.
  std::pair<std::uint64_t, std::uint64_t> OrderOf(const Waiter& waiter, std::uint64_t number) const
      FOREBAY_REQUIRES(mutex_);
  // The waiter for `cap` that goes first; end() if nobody waits for it.
  Waiters::const_iterator First(Cap cap) const FOREBAY_REQUIRES(mutex_);
  // Whether no waiter goes before this one.
  bool IsNext(const Waiter& waiter, std::uint64_t number) const FOREBAY_REQUIRES(mutex_);
  void WakeFirst(Cap cap) FOREBAY_REQUIRES(mutex_);
  bool MayPass(const Waiter& waiter, std::uint64_t number, double amount)
      FOREBAY_REQUIRES(mutex_);
  // The caller wakes the next waiter when it has taken what it wanted.
  Status AwaitTurn(Cap cap, double amount, GfsCalls::Call* under_way) FOREBAY_REQUIRES(mutex_);
  void CountWait(Waiter& waiter, std::int64_t now_ns) FOREBAY_REQUIRES(mutex_);

  io::Clock& clock_;
  // By Cap; set by Begin. Read without the lock, which most daemons, having no caps, never take.
  std::array<std::atomic<bool>, kCaps.size()> is_capped_ = {};
  std::atomic<bool> are_requests_capped_ = false;
  mutable Mutex mutex_;
  // Unset before Begin.
  mutable std::optional<CapShare> share_ FOREBAY_GUARDED_BY(mutex_);
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::unordered_map<std::thread::id, CallerState> callers_ FOREBAY_GUARDED_BY(mutex_);
  Waiters waiters_ FOREBAY_GUARDED_BY(mutex_);
  // Threads with a RequestWait, and since when that counts.
  std::unordered_map<std::thread::id, std::int64_t> request_waits_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t next_number_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::array<std::uint64_t, kCaps.size()> turns_ FOREBAY_GUARDED_BY(mutex_) = {};  // by Cap
};

}  // namespace forebay::stage
