// RequestGate: how many requests to the GFS are under way at once, and whose turn it is. Readers
// that share a bandwidth finish in the order of their ranks instead of all at the end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace forebay::stage {

// Who goes first: the smaller value. It may be lowered while its owner waits, by RequestGate.
using Rank = std::atomic<std::uint64_t>;
// Of who has all the time in the world: it comes after all that was demanded.
inline constexpr std::uint64_t kBackgroundRank = std::uint64_t{1} << 63;

// Thread-safe.
class RequestGate {
 public:
  explicit RequestGate(std::uint32_t permits) : free_(permits) {}

  // One that comes after all that were drawn before; plus kBackgroundRank, among the background's.
  std::uint64_t DrawRank() { return next_rank_.fetch_add(1); }

  // Waits for a permit. Only for who holds none, or the gate would wait for itself.
  void Acquire(const Rank& rank);
  // Takes a permit where one is free that nobody of a smaller rank waits for.
  bool TryAcquire(const Rank& rank);
  void Release();
  // Lowers `rank` to `value`; no effect where it is smaller already.
  void Promote(Rank& rank, std::uint64_t value);
  // How many wait in Acquire.
  std::size_t waiting() const;

 private:
  bool MayPassLocked(const Rank& rank) const;

  std::atomic<std::uint64_t> next_rank_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t free_;
  std::vector<const Rank*> waiting_;  // as many as there are readers, at most
};

}  // namespace forebay::stage
