// Optimisers over plain floats. Every element is computed from its own inputs alone, with no
// contraction into fused multiply-adds, so that the result does not depend on how parameters are
// laid out over stages, vectors or threads. An optimiser is one header, such as sgd.h, and a line
// in optimiser_formulas.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::train {

struct OptimiserOptions;
struct UpdateStep;

// Describes an optimiser. There is one object for each, which lives as long as the program.
struct Optimiser {
  std::string_view name;
  // The names of its states in checkpoints. Each state is a float per weight, which is all the
  // memory that the optimiser takes.
  std::span<const std::string_view> states;
  void (*update)(const OptimiserOptions& options, const UpdateStep& step, std::span<float> weights,
                 std::span<const float> gradient, std::span<const std::span<float>> states);

  std::uint32_t state_count() const { return static_cast<std::uint32_t>(states.size()); }
};

// All optimisers; the first is the default.
std::span<const Optimiser> Optimisers();
// The optimiser of this name. kInvalidArgument, which lists the names, if there is none.
Result<const Optimiser*> FindOptimiser(std::string_view name);

struct OptimiserOptions {
  const Optimiser* optimiser = &Optimisers().front();
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// The numbers of one update of one group of parameters.
struct UpdateStep {
  double learning_rate = 0;
  double weight_decay = 0;
  double gradient_scale = 1;  // of clipping
  std::uint64_t number = 1;   // of updates, this one included: the bias correction of AdamW
};

// Updates `weights` and the optimiser's `states` in place. All spans have the same length.
void UpdateWeights(const OptimiserOptions& options, const UpdateStep& step,
                   std::span<float> weights, std::span<const float> gradient,
                   std::span<const std::span<float>> states);

// The square root, as formulas call it.
inline float Root(float value) { return std::sqrt(value); }

// The sum of squares in double: blocks of 1,024 in order, the blocks' sums in a binary tree.
double SquaredNorm(std::span<const float> values);

// The factor by which gradients are multiplied so that their norm, of which `squared` is the
// square, is at most `limit`. 1 if the limit is 0 (no clipping) or not reached.
double ClipScale(double squared, double limit);

}  // namespace forebay::train
