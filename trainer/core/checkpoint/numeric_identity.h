// NumericIdentity: what decides the bits of the weights, besides seed and data. Checkpoints record
// it, because a run that continues under another identity does not end in the same weights.
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

// The widest vector instructions of the machine, by which libraries choose their kernels ("avx512",
// "avx2" and so on), and the environment variables that override the choice.
std::string VectorInstructions();

// "threads=1 micro_batch=8 library=LibTorch 1.13.0 isa=avx2". Equal texts mean equal results. Where
// they apply, " precision=bf16", " sums=fast" and " layouts=[...]" follow.
std::string ToText(const NumericIdentity& identity);

}  // namespace forebay::train
