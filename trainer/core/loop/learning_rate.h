// LearningRateSchedule: the learning rate as a pure function of the step, so that a resumed run
// continues it exactly.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay::train {

struct LearningRateSchedule {
  enum class Shape { kConstant, kCosine, kStep, kPolynomial };
  Shape shape = Shape::kCosine;
  double peak = 0.05;
  double last = 0.0;               // value after total_steps; kCosine and kPolynomial only
  std::uint64_t warmup_steps = 0;  // linear from peak / warmup_steps
  std::uint64_t total_steps = 1;
  double power = 1.0;                           // kPolynomial
  std::vector<std::uint64_t> decay_steps = {};  // kStep: from these on, times decay_factor each
  double decay_factor = 0.1;

  // The rate of step `step` (0-based). Steps beyond total_steps keep the last value. Cosine
  // decay: Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts.
  double At(std::uint64_t step) const;
};

}  // namespace forebay::train
