// Time as an interface, so that a cluster can be simulated from a seed. Decisions use the
// monotonic clock only; wall time appears in logs alone.
#pragma once

#include <cstdint>

namespace forebay::io {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t NowNs() const = 0;  // monotonic
};

class SteadyClock final : public Clock {
 public:
  std::int64_t NowNs() const override;
};

}  // namespace forebay::io
