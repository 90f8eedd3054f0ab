#include "trainer/core/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace forebay::train {

double LearningRateSchedule::At(std::uint64_t step) const {
  // A warm-up longer than the run would never reach the peak, which nobody means.
  const std::uint64_t warmup = std::min(warmup_steps, total_steps);
  if (step < warmup) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  if (shape == Shape::kConstant) return peak;
  const std::uint64_t decay_steps = total_steps - warmup;
  if (decay_steps == 0 || step >= total_steps) return last;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(decay_steps);
  return last + (peak - last) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace forebay::train
