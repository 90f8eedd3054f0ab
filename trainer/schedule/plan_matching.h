// What of a plan can be checked without executing it: indices, work, messages and collectives.
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

// "rank 2 instruction 17 (RECV ...)".
std::string InstructionName(const StepPlan& plan, std::uint32_t rank, std::size_t at);

// Points 1 and 2 of CheckPlan.
Status CheckPieces(const StepPlan& plan);
Status CheckWork(const StepPlan& plan);
// Point 4; needs CheckPieces.
Result<MessagePartners> MatchMessages(const StepPlan& plan);
// Point 5; needs CheckPieces.
Status CheckCollectiveOrder(const StepPlan& plan);

}  // namespace forebay::train
