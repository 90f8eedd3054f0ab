// Clock: time as an interface, so that tests can simulate a cluster from a seed. Decisions use the
// monotonic clock only. Wall time appears only in logs.
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
