// GrowingPause: the pauses before other nodes are asked again for what they could not give yet.
#pragma once

#include <algorithm>
#include <cstdint>

namespace forebay::stage {

// Nodes are asked again soon at first, because small objects are scanned, and calls answered,
// within milliseconds; and once a second in the end, so that thousands of nodes which wait for one
// cost it little. Not thread-safe.
class GrowingPause {
 public:
  explicit GrowingPause(std::int64_t max_ns = kSecondNs) : max_ns_(max_ns) {}
  // Returns the next pause: 10 ms at first, then twice the last one, `max_ns` at the most.
  std::int64_t NextNs() {
    pause_ns_ = std::clamp(2 * pause_ns_, kMinNs, max_ns_);
    return pause_ns_;
  }
  // The next pause is as short as the first one.
  void Shorten() { pause_ns_ = 0; }

 private:
  static constexpr std::int64_t kMinNs = 10'000'000;
  static constexpr std::int64_t kSecondNs = 1'000'000'000;
  std::int64_t max_ns_;
  std::int64_t pause_ns_ = 0;
};

}  // namespace forebay::stage
