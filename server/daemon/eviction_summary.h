// EvictionSummary: logs evictions once a minute, one line per data set, tier and cause. So the
// number of lines does not grow with the number of evictions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "server/io/clock.h"
#include "server/tier/eviction_ledger.h"

namespace forebay::daemon {

// One thread drives it.
class EvictionSummary {
 public:
  // The name for a tier::DatasetHash; empty if this daemon has no such data set.
  using NameOf = std::function<std::string(std::uint64_t)>;
  // `ledger` and `clock` are borrowed.
  EvictionSummary(tier::EvictionLedger& ledger, const io::Clock& clock, NameOf name_of);

  // Call about once a second: logs once a minute, if there were evictions.
  void Tick();
  // Logs the evictions since the last line; for shutdown.
  void Log();

 private:
  tier::EvictionLedger& ledger_;
  const io::Clock& clock_;
  const NameOf name_of_;
  std::int64_t since_ns_;
};

}  // namespace forebay::daemon
