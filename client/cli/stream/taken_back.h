// Which batches of an opening later openings took back (docs/delivery_log.md).
#pragma once

#include <span>
#include <vector>

#include "client/cli/stream/token_reach.h"

namespace forebay::cli {

// From which step on the batches of an opening were taken back.
struct TakenBack {
  StepKey from = kBehindEveryStep;
  // The same step if clocks are wrong lies between these two, both included. Files and tokens allow
  // no other order of the openings in which it lies outside.
  StepKey earliest = kBehindEveryStep;
  StepKey latest = kBehindEveryStep;
};

// One for each of `openings`, which are in the order of time. An opening takes back what its own
// rank had consumed from its first step on, and what other numbers of ranks had.
std::vector<TakenBack> FindTakenBack(std::span<const OpeningPlace> openings);

}  // namespace forebay::cli
