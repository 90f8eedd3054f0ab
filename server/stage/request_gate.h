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

// Thread-safe.
class RequestGate {
 public:
  explicit RequestGate(std::uint32_t permits) : free_(permits) {}

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

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t free_;
  std::vector<const Rank*> waiting_;  // as many as there are readers, at most
};

}  // namespace forebay::stage
