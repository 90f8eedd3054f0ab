// DeviceHealth: counts device errors of the SSD tier and decides when the tier is retired, that is,
// when nothing more is written to it until a restart. Its extents are still read, because each read
// is verified and a failure costs its own extent alone.
#pragma once

#include <cstdint>
#include <deque>

#include "server/tier/extent_key.h"

namespace forebay::tier {

// Not thread-safe.
class DeviceHealth {
 public:
  // Counts an error of the device while it read or wrote the extent `key`. Errors for
  // limits::kTierErrorsBeforeRetire extents within a minute retire the tier, which is logged.
  void CountError(const ExtentKey& key, std::int64_t now_ns);

  bool is_retired() const { return is_retired_; }
  std::uint64_t errors() const { return errors_; }  // counted since the start

 private:
  struct LastError {
    std::int64_t at_ns = 0;
    ExtentKey key;
  };
  std::deque<LastError> last_;  // the last error of each extent, oldest first
  bool is_retired_ = false;
  std::uint64_t errors_ = 0;
};

}  // namespace forebay::tier
