// The learning rate as a pure function of the step. It keeps no state, so that a resumed run has
// the rates of a run that was not interrupted, and all ranks have the same ones. The loop calls it
// once a step.
#include "trainer/core/loop/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace forebay::train {

// Warm-up first, then the shape over the steps that remain.
double LearningRateSchedule::At(std::uint64_t step) const {
  // A warm-up longer than the run would never reach the peak, which nobody means.
  const std::uint64_t warmup = std::min(warmup_steps, total_steps);
  if (step < warmup) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  if (shape == Shape::kConstant) return peak;
  // Counted from the beginning and not step by step, so that a resumed run knows how often the
  // rate has fallen.
  if (shape == Shape::kStep) {
    const auto passed = std::ranges::count_if(
        decay_steps, [step](std::uint64_t decay) { return step >= decay; });
    return peak * std::pow(decay_factor, static_cast<double>(passed));
  }
  const std::uint64_t falling_steps = total_steps - warmup;
  if (falling_steps == 0 || step >= total_steps) return last;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(falling_steps);
  if (shape == Shape::kPolynomial) return last + (peak - last) * std::pow(1.0 - done, power);
  return last + (peak - last) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace forebay::train
