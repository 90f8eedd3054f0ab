// Point 2 of CheckPlan: the lists compute the step, each part of it once and from its own inputs.
#pragma once

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// kInvalidArgument naming rank and instruction. Needs CheckPieces.
Status CheckWork(const StepPlan& plan);

}  // namespace forebay::train
