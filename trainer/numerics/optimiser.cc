// Compiled with -ffp-contract=off: see the header.
#include "trainer/numerics/optimiser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "proto/contract/check.h"
#include "trainer/comm/collectives.h"

namespace forebay::train {
namespace {

// Both updates read all of an element before they write any of it: arrays that lie at the same
// offset of their pages look to a processor as if a load needed the store before it, and the update
// takes eight times as long. Pointers, because checked indices keep loops out of vectors.
void UpdateSgd(const OptimiserOptions& options, const UpdateStep& step, std::size_t count,
               float* weights, const float* gradient, float* velocity) {
  const auto rate = static_cast<float>(step.learning_rate);
  const auto decay = static_cast<float>(step.weight_decay);
  const auto scale = static_cast<float>(step.gradient_scale);
  const auto momentum = static_cast<float>(options.momentum);
  for (std::size_t i = 0; i < count; ++i) {
    const float weight = weights[i];
    const float slope = gradient[i] * scale + weight * decay;
    const float speed = velocity[i] * momentum + slope;
    velocity[i] = speed;
    weights[i] = weight - speed * rate;
  }
}

void UpdateAdamW(const OptimiserOptions& options, const UpdateStep& step, std::size_t count,
                 float* weights, const float* gradient, float* means, float* squares) {
  const auto number = static_cast<double>(step.number);
  const double mean_bias = 1.0 - std::pow(options.beta1, number);
  const double square_bias = 1.0 - std::pow(options.beta2, number);
  const auto rate = static_cast<float>(step.learning_rate / mean_bias);
  const auto root = static_cast<float>(1.0 / std::sqrt(square_bias));
  const auto keep = static_cast<float>(1.0 - step.learning_rate * step.weight_decay);
  const auto scale = static_cast<float>(step.gradient_scale);
  const auto beta1 = static_cast<float>(options.beta1);
  const auto beta2 = static_cast<float>(options.beta2);
  const auto epsilon = static_cast<float>(options.epsilon);
  for (std::size_t i = 0; i < count; ++i) {
    const float weight = weights[i];
    const float slope = gradient[i] * scale;
    const float mean = means[i] * beta1 + slope * (1.0F - beta1);
    const float square = squares[i] * beta2 + slope * slope * (1.0F - beta2);
    means[i] = mean;
    squares[i] = square;
    weights[i] = weight * keep - rate * mean / (std::sqrt(square) * root + epsilon);
  }
}

}  // namespace

Result<OptimiserKind> ParseOptimiser(std::string_view name) {
  for (const OptimiserKind kind : {OptimiserKind::kSgd, OptimiserKind::kAdamW}) {
    if (name == OptimiserName(kind)) return kind;
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("unknown optimiser \"{}\": sgd or adamw", name));
}

std::string_view OptimiserName(OptimiserKind kind) {
  return kind == OptimiserKind::kSgd ? "sgd" : "adamw";
}

std::uint32_t OptimiserStates(OptimiserKind kind) {
  return kind == OptimiserKind::kSgd ? 1 : 2;
}

void UpdateWeights(const OptimiserOptions& options, const UpdateStep& step,
                   std::span<float> weights, std::span<const float> gradient,
                   std::span<const std::span<float>> states) {
  FOREBAY_CHECK(gradient.size() == weights.size());
  FOREBAY_CHECK(states.size() == OptimiserStates(options.kind));
  for (const std::span<float>& state : states) FOREBAY_CHECK(state.size() == weights.size());
  if (options.kind == OptimiserKind::kSgd) {
    UpdateSgd(options, step, weights.size(), weights.data(), gradient.data(), states[0].data());
  } else {
    UpdateAdamW(options, step, weights.size(), weights.data(), gradient.data(), states[0].data(),
                states[1].data());
  }
}

double SquaredNorm(std::span<const float> values) {
  constexpr std::size_t kBlock = 1024;
  std::vector<double> sums(std::max<std::size_t>(1, (values.size() + kBlock - 1) / kBlock));
  for (std::size_t at = 0; at < values.size(); ++at) {
    const double value = values[at];
    sums[at / kBlock] += value * value;
  }
  std::vector<double*> leaves;
  for (double& sum : sums) leaves.push_back(&sum);
  SumTree<double>(leaves, 1);
  return sums[0];
}

double ClipScale(double squared, double limit) {
  const double norm = std::sqrt(squared);
  return limit > 0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace forebay::train
