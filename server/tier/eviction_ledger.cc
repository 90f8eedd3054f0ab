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
  return std::exchange(sums_, {});
}

}  // namespace forebay::tier
