// EvictionSummary: what left the tiers, as lines of the log: one per data set, tier and cause, for
// all that happened in a minute. A tier that thrashes writes no more of them than a quiet one.
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
  // By tier::DatasetHash; empty for a data set that this daemon was not told of.
  using NameOf = std::function<std::string(std::uint64_t)>;
  // `ledger` and `clock` are borrowed.
  EvictionSummary(tier::EvictionLedger& ledger, const io::Clock& clock, NameOf name_of);

  // To be called about once a second: logs once a minute, where there is something to say.
  void Tick();
  // Logs what has come since, at the end.
  void Log();

 private:
  tier::EvictionLedger& ledger_;
  const io::Clock& clock_;
  const NameOf name_of_;
  std::int64_t since_ns_;
};

}  // namespace forebay::daemon
