// EvictionLedger: counts how many extents of which data set left which tier, and why. The cache
// counts; the daemon takes the counts from time to time and logs them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "proto/contract/thread_annotations.h"
#include "server/tier/resident_extent.h"

namespace forebay::tier {

enum class EvictionCause : std::uint8_t {
  kRoom = 0,     // other extents needed the space
  kAsked = 1,    // 'forebay evict', a rebuild, or a pass that failed
  kDamaged = 2,  // the copy did not match its checksum, or could not be read
};

// Thread-safe. Holds an entry per data set, tier and cause.
class EvictionLedger {
 public:
  struct Key {
    std::uint64_t dataset = 0;  // DatasetHash(name)
    TierKind tier = TierKind::kRam;
    EvictionCause cause = EvictionCause::kRoom;
    auto operator<=>(const Key&) const = default;
  };
  struct Sum {
    std::uint64_t extents = 0;
    std::uint64_t gone = 0;  // how many of them were then on no tier
  };

  // `is_gone`: the extent is on no tier any more.
  void Count(const Key& key, bool is_gone);
  // Returns the counts since the last call.
  std::map<Key, Sum> Take();

 private:
  Mutex mutex_;
  std::map<Key, Sum> sums_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::tier
