// CatalogFailure: why a data set has no catalog, and from when that is known. In a job of several
// nodes each one needs what the others have found, so the failure of one node ends the attempts of
// the others. Two nodes could then hand one failure to and fro without end, long after its cause
// has gone. So a failure that another node has reported keeps the time at which that node has
// found it, and no node passes it on for longer than kKnownNs from then.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"

namespace forebay::stage {

struct CatalogFailure {
  // A node that waits for a part asks once a second. So it hears of a failure before this time is
  // over, and a node that asks later has begun since.
  static constexpr std::int64_t kKnownNs = 10'000'000'000;

  Error error;
  std::int64_t at_ns = 0;  // of io::Clock: when it was found, here or by the node that reported it
  bool is_reported = false;  // another node has found it

  bool IsOld(std::int64_t now_ns) const { return now_ns - at_ns >= kKnownNs; }
};

}  // namespace forebay::stage
