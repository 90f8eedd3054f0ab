// The list of optimisers. Each is a formula, which is written once and computes with floats
// (optimiser.cc) as well as with tensors (exec/tensor_update.cc): the type Value below.
//
// A formula is a struct in a header of its own with these members:
//   kName                 the name in configurations and checkpoints
//   kStates               the names of the numbers that it keeps for each weight, in checkpoints
//   Factors               the factors of one step, as floats; FactorsOf(options, step) makes them
//   Update<Value>(factors, weight, gradient, states...)  changes weight and states in place
// Update combines values and factors by +, *, /, Root, *=, += and -=. The files that instantiate it
// are compiled without contraction into fused multiply-adds.
#pragma once

#include <tuple>

#include "trainer/numerics/adamw.h"
#include "trainer/numerics/sgd.h"

namespace forebay::train {

// The first is the default.
using OptimiserFormulas = std::tuple<Sgd, AdamW>;

}  // namespace forebay::train
