// RateQueue: one shared server (a disk, a link, a metadata server) as a queue in virtual time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace forebay::bench {

// Each piece of work reserves its cost behind all earlier ones and learns when it is done; who
// reserved then sleeps until that moment. Time not used for up to `burst_ns` may be caught up
// on, so that neither late wake-ups nor a client's gaps between requests lower the rate.
// Times are nanoseconds of one monotonic clock, passed in. Thread-safe; never blocks for long.
class RateQueue {
 public:
  explicit RateQueue(std::int64_t burst_ns) : burst_ns_(burst_ns) {}

  // Reserves `cost_ns` of the server at `now_ns`; returns when that work is done, which may lie
  // in the past where time is being caught up on.
  std::int64_t Reserve(std::int64_t now_ns, std::int64_t cost_ns) {
    const std::lock_guard lock(mutex_);
    next_free_ns_ = std::max(next_free_ns_, now_ns - burst_ns_) + cost_ns;
    return next_free_ns_;
  }

  // Gives back what turned out not to be needed.
  void Refund(std::int64_t cost_ns) {
    const std::lock_guard lock(mutex_);
    next_free_ns_ -= cost_ns;
  }

 private:
  const std::int64_t burst_ns_;
  std::mutex mutex_;
  std::int64_t next_free_ns_ = 0;
};

}  // namespace forebay::bench
