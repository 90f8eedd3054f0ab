// ManualClock: a clock that tests set. Part of forebay::io_testing.
#pragma once

#include <atomic>
#include <cstdint>

#include "server/io/clock.h"

namespace forebay::io {

// Thread-safe. Time never goes backwards.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(std::int64_t start_ns = 0) : now_ns_(start_ns) {}
  std::int64_t NowNs() const override { return now_ns_.load(); }
  void AdvanceNs(std::int64_t duration_ns) { now_ns_.fetch_add(duration_ns); }

 private:
  std::atomic<std::int64_t> now_ns_;
};

}  // namespace forebay::io
