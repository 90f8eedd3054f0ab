// The monotonic clock of the machine, which neither jumps nor goes backwards when wall time is set.
#include "server/io/clock.h"

#include <chrono>

namespace forebay::io {

std::int64_t SteadyClock::NowNs() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace forebay::io
