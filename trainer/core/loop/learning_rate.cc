// The learning rate as a pure function of the step. It keeps no state, so that a resumed run has
// the rates of a run that was not interrupted, and all ranks have the same ones. The loop calls it
// once a step.
#include "trainer/core/loop/learning_rate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

namespace forebay::train {
namespace {

// A warm-up longer than the run would never reach the peak, which nobody means.
std::uint64_t WarmupSteps(const LearningRateSchedule& schedule) {
  return std::min(schedule.warmup_steps, schedule.total_steps);
}

// The share of the steps after the warm-up that has passed: 0 at the first of them, 1 at the end.
double Passed(const LearningRateSchedule& schedule, std::uint64_t step) {
  const std::uint64_t warmup = WarmupSteps(schedule);
  const std::uint64_t steps = schedule.total_steps - warmup;
  if (steps == 0 || step >= schedule.total_steps) return 1.0;
  return static_cast<double>(step - warmup) / static_cast<double>(steps);
}

// Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts.
double Cosine(const LearningRateSchedule& schedule, std::uint64_t step) {
  const double turn = std::numbers::pi * Passed(schedule, step);
  return schedule.last + (schedule.peak - schedule.last) * 0.5 * (1.0 + std::cos(turn));
}

double Constant(const LearningRateSchedule& schedule, std::uint64_t) { return schedule.peak; }

// Counted from the beginning and not step by step, so that a resumed run knows how often the rate
// has fallen.
double Steps(const LearningRateSchedule& schedule, std::uint64_t step) {
  const auto passed = std::ranges::count_if(
      schedule.decay_steps, [step](std::uint64_t decay) { return step >= decay; });
  return schedule.peak * std::pow(schedule.decay_factor, static_cast<double>(passed));
}

double Polynomial(const LearningRateSchedule& schedule, std::uint64_t step) {
  return schedule.last + (schedule.peak - schedule.last) *
                             std::pow(1.0 - Passed(schedule, step), schedule.power);
}

constexpr std::array kShapes = {
    LearningRateShape{.name = "cosine", .rate = Cosine},
    LearningRateShape{.name = "constant", .rate = Constant},
    LearningRateShape{.name = "step", .rate = Steps},
    LearningRateShape{.name = "polynomial", .rate = Polynomial},
};

}  // namespace

std::span<const LearningRateShape> LearningRateShapes() { return kShapes; }

Result<const LearningRateShape*> FindLearningRateShape(std::string_view name) {
  const auto found = std::ranges::find(kShapes, name, &LearningRateShape::name);
  if (found != kShapes.end()) return &*found;
  return Error(ErrorCode::kInvalidArgument,
               "no shape of the learning rate is called '" + std::string(name) + "'");
}

// Warm-up first, then the shape over the steps that remain.
double LearningRateSchedule::At(std::uint64_t step) const {
  const std::uint64_t warmup = WarmupSteps(*this);
  if (step >= warmup) return shape->rate(*this, step);
  return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
}

}  // namespace forebay::train
