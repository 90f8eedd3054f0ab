// Points 4 and 5 of CheckPlan: both ends of every message, the order of collectives.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// partner[rank][instruction]: for a message, the index of its other end in the list of the
// instruction's peer; kNoPartner for all else.
inline constexpr std::uint32_t kNoPartner = 0xffffffff;
using MessagePartners = std::vector<std::vector<std::uint32_t>>;

// Point 4 of CheckPlan; needs CheckPieces.
Result<MessagePartners> MatchMessages(const StepPlan& plan);
// Point 5; needs CheckPieces.
Status CheckCollectiveOrder(const StepPlan& plan);

}  // namespace forebay::train
