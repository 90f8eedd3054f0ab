// OneReplica: a plan cut down to its first replica, for a search that tries many plans.
#pragma once

#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Replicas of a plan that BuildPlan made do the same at the same time, so that one of them stands
// for all: its ranks need the same bytes, and it takes the same time. Reductions keep their number
// of members, on which their time depends. `plan` must have passed CheckPlan, and the result passes
// it as well.
StepPlan OneReplica(const StepPlan& plan);

}  // namespace forebay::train
