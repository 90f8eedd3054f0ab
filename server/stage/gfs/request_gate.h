// RequestGate: limits how many requests to the GFS are under way at once, and admits them by
// priority. So extents that share the GFS's bandwidth are complete one after another, in the order
// of their priorities, instead of all at the end. GfsReader takes a permit for each request. If the
// job has a cap on requests in flight, this node's share of that counts, too (RequestShare).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"

namespace forebay::stage {

class GfsThrottle;

// Priority of requests: the smaller value goes first. RequestGate::Promote may lower it (that is,
// make it more urgent) while its owner waits.
using Priority = std::atomic<std::uint64_t>;
// Lowest priority (background work): added to a value, it puts that behind all demands.
inline constexpr std::uint64_t kBackgroundPriority = std::uint64_t{1} << 63;
// Priority of reads from which catalogs are built: behind all demands, and before background work.
inline constexpr std::uint64_t kCataloguePriority = kBackgroundPriority - 1;

// Thread-safe.
class RequestGate {
 public:
  // The right to one request, from Acquire to Release.
  using Permit = std::uint64_t;
  // Requests for the same object have the same group; any number will do.
  using Group = std::uint64_t;
  // Default of lent_max / permits: how many additional requests may be under way per permit.
  static constexpr std::size_t kLentPerPermit = 4;

  // `clock` is borrowed. At most `lent_max` places are lent at a time (LendPlacesOf). `caps` says
  // how many more requests the cap of the job allows, and then no places are lent, because requests
  // that are not answered count; borrowed, null: there is no cap.
  RequestGate(std::uint32_t permits, io::Clock& clock, std::size_t lent_max,
              GfsThrottle* caps = nullptr);
  RequestGate(std::uint32_t permits, io::Clock& clock)
      : RequestGate(permits, clock, permits * kLentPerPermit) {}

  // A priority behind all values that this returned before. Add kBackgroundPriority for background
  // work.
  std::uint64_t NextPriority() { return next_priority_.fetch_add(1); }

  // Waits for a permit. The calling thread must hold none, or it could wait for itself.
  Permit Acquire(const Priority& priority, Group group);
  // A permit, if one is free that no request with a smaller priority value waits for or wants.
  std::optional<Permit> TryAcquire(const Priority& priority, Group group);
  // A demand that has requests under way wants to make more, but cannot wait in Acquire, because it
  // has to take the results of the others. As many free places as it wants are kept from requests
  // with larger priority values; but only for a while after its last permit, because its object may
  // not answer: for kHoldBackMs from background work, and for kHoldBackDemandsMs from other
  // demands. No places are kept for background work.
  class Want {
   public:
    Want(RequestGate& gate, const Priority& priority, Group group);
    ~Want();
    Want(const Want&) = delete;
    Want& operator=(const Want&) = delete;
    // Says how many requests it would make now.
    void Set(std::size_t requests);
    // Says that it has got a permit, and would make so many more.
    void Renew(std::size_t requests);

   private:
    RequestGate& gate_;
    const std::uint64_t number_;
  };
  static constexpr std::int64_t kHoldBackMs = 500;
  static constexpr std::int64_t kHoldBackDemandsMs = 50;

  void Release(Permit permit);
  // Lowers `priority` to `value`; no effect if it is smaller already.
  void Promote(Priority& priority, std::uint64_t value);
  // Number of threads that wait in Acquire.
  std::size_t waiting() const;

  // Call about once a second. Lends the places of requests that have taken longer than this to
  // requests of other groups. Requests of the same group wait until these have ended.
  void LendPlacesOf(std::int64_t longer_than_ns);
  // Number of places that are lent now.
  std::size_t lent() const;
  // Threads that wait in Acquire because the place of a request of their group is lent.
  std::vector<std::thread::id> BlockedThreads() const;

 private:
  struct Waiter {
    const Priority* priority = nullptr;
    Group group = 0;
    std::thread::id thread;
  };
  struct Request {
    std::int64_t since_ns = 0;
    Group group = 0;
  };

  struct Wanted {
    const Priority* priority = nullptr;
    Group group = 0;
    std::size_t requests = 0;
    std::int64_t since_ns = 0;  // its last permit
  };

  std::optional<Permit> TryTakeLocked(const Priority& priority, Group group)
      FOREBAY_REQUIRES(mutex_);
  std::size_t WantedBeforeLocked(std::uint64_t priority) const FOREBAY_REQUIRES(mutex_);

  io::Clock& clock_;
  GfsThrottle* const caps_;
  std::atomic<std::uint64_t> next_priority_ = 0;
  mutable Mutex mutex_;
  CondVar changed_;
  std::uint32_t free_ FOREBAY_GUARDED_BY(mutex_);
  const std::size_t lent_max_;
  Permit next_permit_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::map<Permit, Request> held_ FOREBAY_GUARDED_BY(mutex_);  // the oldest first
  // Requests under way whose place is lent.
  std::unordered_map<Permit, Group> lent_ FOREBAY_GUARDED_BY(mutex_);
  // By group: how many of them.
  std::unordered_map<Group, std::size_t> lent_of_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<Waiter> waiting_ FOREBAY_GUARDED_BY(mutex_);  // at most one for each thread
  std::map<std::uint64_t, Wanted> wanted_ FOREBAY_GUARDED_BY(mutex_);  // by Want
  std::uint64_t next_want_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::stage
