// RequestGate: how many requests to the GFS are under way at once, and whose turn it is. Readers
// that share a bandwidth finish in the order of their ranks instead of all at the end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/io/clock.h"

namespace forebay::stage {

// Who goes first: the smaller value. It may be lowered while its owner waits, by RequestGate.
using Rank = std::atomic<std::uint64_t>;
// Of who has all the time in the world: it comes after all that was demanded.
inline constexpr std::uint64_t kBackgroundRank = std::uint64_t{1} << 63;

// Thread-safe.
class RequestGate {
 public:
  // The right to one request, from Acquire to Release.
  using Permit = std::uint64_t;
  // Which requests are about the same object: any number that is the object's.
  using Group = std::uint64_t;
  // Requests that may be under way beyond the permits, for each of these, unless told.
  static constexpr std::size_t kLentPerPermit = 4;

  // `clock` is borrowed. At most `lent_max` places are lent at a time.
  RequestGate(std::uint32_t permits, io::Clock& clock, std::size_t lent_max)
      : clock_(clock), free_(permits), lent_max_(lent_max) {}
  RequestGate(std::uint32_t permits, io::Clock& clock)
      : RequestGate(permits, clock, permits * kLentPerPermit) {}

  // One that comes after all that were drawn before; plus kBackgroundRank, among the background's.
  std::uint64_t DrawRank() { return next_rank_.fetch_add(1); }

  // Waits for a permit. Only for who holds none, or the gate would wait for itself.
  Permit Acquire(const Rank& rank, Group group);
  // A permit, where one is free that nobody of a smaller rank waits for.
  std::optional<Permit> TryAcquire(const Rank& rank, Group group);
  void Release(Permit permit);
  // Lowers `rank` to `value`; no effect where it is smaller already.
  void Promote(Rank& rank, std::uint64_t value);
  // How many wait in Acquire.
  std::size_t waiting() const;

  // Requests that go on for longer than this do not keep those of other groups out: these get their
  // places. Those of the same group are not let in before they end.
  void LendPlacesOf(std::int64_t longer_than_ns);
  // How many places are lent now.
  std::size_t lent() const;
  // Threads that wait in Acquire for requests of their group that take so long.
  std::vector<std::thread::id> HeldUpThreads() const;

 private:
  struct Waiter {
    const Rank* rank = nullptr;
    Group group = 0;
    std::thread::id thread;
  };
  struct Request {
    std::int64_t since_ns = 0;
    Group group = 0;
  };

  bool MayPassLocked(const Rank& rank, Group group) const;
  Permit TakeLocked(Group group);

  io::Clock& clock_;
  std::atomic<std::uint64_t> next_rank_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t free_;
  const std::size_t lent_max_;
  Permit next_permit_ = 0;
  std::map<Permit, Request> held_;  // the oldest first
  std::unordered_map<Permit, Group> lent_;  // requests under way whose place another has
  std::unordered_map<Group, std::size_t> lent_of_;
  std::vector<Waiter> waiting_;     // as many as there are threads, at most
};

}  // namespace forebay::stage
