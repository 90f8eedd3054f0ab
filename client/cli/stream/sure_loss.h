// Whether a rank has lost a batch in whatever order the openings of a stream came.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "client/cli/stream/epoch_judge.h"
#include "client/cli/stream/token_reach.h"
#include "proto/contract/order_steps.h"

namespace forebay::cli {

// The batches that an opening delivered. Those from `end` on were taken back by a later opening.
struct CountedDelivery {
  OpeningPlace place;
  StepKey end;  // no batch from here on counts, in any order (TakenBack::latest)
  std::span<const LoggedBatch> batches;
};

struct LosingRank {
  std::uint64_t ranks = 0;
  std::uint64_t rank = 0;
};

// Returns a rank that lacks a step of [start, end) in every order that files and tokens allow;
// none if there may be an order in which each rank has all. A step that may have been delivered to
// another number of ranks, or otherwise than as a rank's whole share, is left out. `plan` may be
// that of any number of ranks.
std::optional<LosingRank> FindSureLoss(std::span<const CountedDelivery> openings,
                                       const StepPlan& plan, StepKey start, StepKey end);

}  // namespace forebay::cli
