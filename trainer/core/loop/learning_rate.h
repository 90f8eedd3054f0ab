// LearningRateSchedule: the learning rate as a pure function of the step, so that a resumed run
// continues it exactly. A shape, such as cosine, is a function and a row of the table in
// learning_rate.cc, from which the configuration and --help have its name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

struct LearningRateSchedule;

// How the rate changes after the warm-up. There is one object for each shape, which lives as long
// as the program.
struct LearningRateShape {
  std::string_view name;
  double (*rate)(const LearningRateSchedule& schedule, std::uint64_t step);
};

// All shapes; the first is the default.
std::span<const LearningRateShape> LearningRateShapes();
// The shape of this name. kInvalidArgument, which names it, if there is none.
Result<const LearningRateShape*> FindLearningRateShape(std::string_view name);

struct LearningRateSchedule {
  const LearningRateShape* shape = &LearningRateShapes().front();
  double peak = 0.05;
  double last = 0.0;               // value after total_steps; cosine and polynomial only
  std::uint64_t warmup_steps = 0;  // linear from peak / warmup_steps
  std::uint64_t total_steps = 1;
  double power = 1.0;                           // polynomial
  std::vector<std::uint64_t> decay_steps = {};  // step: from these on, times decay_factor each
  double decay_factor = 0.1;

  // The rate of step `step` (0-based). Steps beyond total_steps keep the last value.
  double At(std::uint64_t step) const;
};

}  // namespace forebay::train
