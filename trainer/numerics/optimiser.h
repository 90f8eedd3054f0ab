// Optimisers as loops over plain floats. Every element is computed from its own inputs alone, with
// no contraction into fused multiply-adds, so that the result does not depend on how parameters
// are laid out over stages, vectors or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::train {

enum class OptimiserKind : std::uint8_t {
  kSgd,    // with momentum (Sutskever et al., 2013, as PyTorch writes it), coupled weight decay
  kAdamW,  // Loshchilov and Hutter, 2019
};

Result<OptimiserKind> ParseOptimiser(std::string_view name);  // "sgd", "adamw"
std::string_view OptimiserName(OptimiserKind kind);
// Floats of state per parameter: 1 and 2.
std::uint32_t OptimiserStates(OptimiserKind kind);

struct OptimiserOptions {
  OptimiserKind kind = OptimiserKind::kSgd;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// Of one update of one group of parameters.
struct UpdateStep {
  double learning_rate = 0;
  double weight_decay = 0;
  double gradient_scale = 1;  // of clipping
  std::uint64_t number = 1;   // of updates, this one included: the bias correction of AdamW
};

// Updates `weights` and the optimiser's `states` (OptimiserStates spans) in place. All spans have
// the same length.
void UpdateWeights(const OptimiserOptions& options, const UpdateStep& step,
                   std::span<float> weights, std::span<const float> gradient,
                   std::span<const std::span<float>> states);

// The sum of squares in double: blocks of 1,024 in order, the blocks' sums in a binary tree.
double SquaredNorm(std::span<const float> values);

// What gradients are multiplied with, so that their norm, of which `squared` is the square, is at
// most `limit`. 1 where the limit is 0 (no clipping) or not reached.
double ClipScale(double squared, double limit);

}  // namespace forebay::train
