// CatalogFailure: why a data set has no catalog, and since when this is known. In a job of several
// nodes each one needs what the others have found, so the failure of one node ends the attempts of
// the others. Two nodes could then pass one failure back and forth without end, long after its
// cause has gone. So a failure that another node has reported keeps its age, whatever way it came,
// and no node passes it on once it is older than kKnownNs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/contract/result.h"

namespace forebay::stage {

struct CatalogFailure {
  // A node that waits for a part asks once a second, so it hears of a failure before this time is
  // over.
  static constexpr std::int64_t kKnownNs = 10'000'000'000;

  Error error;
  // By io::Clock: when this node's attempt failed or, if the failure was reported, when that of the
  // node failed which has found it.
  std::int64_t at_ns = 0;
  bool is_reported = false;  // another node has found it

  std::int64_t AgeNs(std::int64_t now_ns) const {
    return std::max<std::int64_t>(0, now_ns - at_ns);
  }
  bool IsOld(std::int64_t now_ns) const { return AgeNs(now_ns) >= kKnownNs; }
};

}  // namespace forebay::stage
