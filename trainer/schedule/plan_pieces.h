// Point 1 of CheckPlan: every index of a plan points at something.
#pragma once

#include "proto/contract/result.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// kInvalidArgument naming rank and instruction. Comes before all other checks, which rely on it.
Status CheckPieces(const StepPlan& plan);

}  // namespace forebay::train
