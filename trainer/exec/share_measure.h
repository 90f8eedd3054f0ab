// ShareMeasure: rank 0's measurement of the model on every rank, so that all plan alike.
#pragma once

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/exec/hybrid_trainer.h"

namespace forebay::train {

// Replaces `measure` by rank 0's; elsewhere it may be empty. Collective. kDataLoss where what
// arrives is not a measurement of a model of `parts` parts.
Status ShareMeasure(ModelMeasure& measure, std::size_t parts, Communicator& communicator);

}  // namespace forebay::train
