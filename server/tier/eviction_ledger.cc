// Sums of evictions since the last Take. ExtentCache counts while it holds its own lock, and a
// thread of the daemon takes the sums for the log, so this has a lock of its own that is held for a
// few instructions.
#include "server/tier/eviction_ledger.h"

#include <utility>

namespace forebay::tier {

void EvictionLedger::Count(const Key& key, bool is_gone) {
  MutexLock lock(mutex_);
  Sum& sum = sums_[key];
  ++sum.extents;
  if (is_gone) ++sum.gone;
}

std::map<EvictionLedger::Key, EvictionLedger::Sum> EvictionLedger::Take() {
  MutexLock lock(mutex_);
  // A key that was not counted since is gone from the map, so the log names only what happened.
  return std::exchange(sums_, {});
}

}  // namespace forebay::tier
