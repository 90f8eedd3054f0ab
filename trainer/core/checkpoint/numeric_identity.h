// What besides seed and data decides the bits of the weights: recorded in checkpoints, because a
// run that goes on under another identity does not end where it would have ended.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/numerics/precision.h"

namespace forebay::train {

struct NumericIdentity {
  std::uint32_t threads = 1;      // of one operation
  std::uint32_t micro_batch = 1;  // samples of a canonical one
  std::string library;            // "LibTorch 1.13.0"
  Precision precision = Precision::kFp32;
  bool exact = true;              // false: the sum of gradients depends on the layout
  std::string layouts = {};       // the run's, where the weights depend on them
};

// The widest vector instructions that libraries choose their kernels by: "avx512", "avx2" and so
// on, with what the environment says to the contrary.
std::string VectorInstructions();

// "threads=1 micro_batch=8 library=LibTorch 1.13.0 isa=avx2": equal texts, equal results. Behind
// it, where they are so: " precision=bf16", " sums=fast", " layouts=[...]".
std::string ToText(const NumericIdentity& identity);

}  // namespace forebay::train
