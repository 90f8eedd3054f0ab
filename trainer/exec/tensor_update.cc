#include "trainer/exec/tensor_update.h"

#include <ATen/core/grad_mode.h>

#include <bit>
#include <cmath>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

// Scalars are rounded to floats before they are used, as numerics/ does.
double Rounded(double value) { return static_cast<float>(value); }

torch::Tensor Scaled(const torch::Tensor& values, double scale) {
  return scale == 1 ? values : values.mul(Rounded(scale));
}

// Rounded as the standard of floats says. MKL's, which LibTorch may take on a processor, is not.
torch::Tensor Root(const torch::Tensor& values) {
  if (!values.is_cpu()) return values.sqrt();
  return values.to(torch::kFloat64).sqrt_().to(torch::kFloat32);
}

// One operation after the other, none of them fused: so that a sum is of two rounded products.
void UpdateSgd(const OptimiserOptions& options, const UpdateStep& step, torch::Tensor weights,
               const torch::Tensor& gradient, torch::Tensor velocity) {
  torch::Tensor slope = Scaled(gradient, step.gradient_scale);
  if (step.weight_decay != 0) slope = slope.add(weights.mul(Rounded(step.weight_decay)));
  velocity.mul_(Rounded(options.momentum)).add_(slope);
  weights.sub_(velocity.mul(Rounded(step.learning_rate)));
}

void UpdateAdamW(const OptimiserOptions& options, const UpdateStep& step, torch::Tensor weights,
                 const torch::Tensor& gradient, torch::Tensor mean, torch::Tensor square) {
  const auto number = static_cast<double>(step.number);
  const double mean_bias = 1.0 - std::pow(options.beta1, number);
  const double square_bias = 1.0 - std::pow(options.beta2, number);
  const auto beta1 = static_cast<float>(options.beta1);
  const auto beta2 = static_cast<float>(options.beta2);
  const torch::Tensor slope = Scaled(gradient, step.gradient_scale);
  mean.mul_(beta1).add_(slope.mul(1.0F - beta1));
  square.mul_(beta2).add_(slope.mul(slope).mul_(1.0F - beta2));
  const torch::Tensor divisor =
      Root(square).mul_(Rounded(1.0 / std::sqrt(square_bias))).add_(Rounded(options.epsilon));
  const torch::Tensor change = mean.mul(Rounded(step.learning_rate / mean_bias)).div_(divisor);
  const double keep = 1.0 - step.learning_rate * step.weight_decay;
  if (keep != 1) weights.mul_(Rounded(keep));
  weights.sub_(change);
}

}  // namespace

TensorGradientSum::TensorGradientSum(std::size_t floats, SumOrder order,
                                     const torch::Device& device)
    : floats_(static_cast<std::int64_t>(floats)), order_(order), device_(device) {}

torch::Tensor TensorGradientSum::Leaf(std::size_t offset, std::size_t floats) {
  if (!leaf_.defined()) leaf_ = torch::empty({floats_}, device_);
  return leaf_.narrow(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(floats));
}

void TensorGradientSum::Add(std::size_t offset, const torch::Tensor& piece) {
  const torch::NoGradGuard no_grad;
  Leaf(offset, static_cast<std::size_t>(piece.numel())).view(piece.sizes()).copy_(piece);
}

void TensorGradientSum::AddNothing(std::size_t offset, std::size_t floats) {
  Leaf(offset, floats).zero_();
}

void TensorGradientSum::Next() {
  std::size_t carries = micro_batches_ == 0 ? 0 : 1;
  if (order_ == SumOrder::kTree) {
    carries = static_cast<std::size_t>(std::countr_one(micro_batches_));
  }
  torch::Tensor sum = Leaf(0, static_cast<std::size_t>(floats_));
  for (std::size_t carry = 0; carry < carries; ++carry) {
    sum = nodes_.back().add_(sum);
    nodes_.pop_back();
  }
  if (carries == 0) leaf_ = torch::Tensor();  // it is a node now
  nodes_.push_back(sum);
  ++micro_batches_;
}

torch::Tensor TensorGradientSum::Finish() {
  if (nodes_.empty()) nodes_.push_back(torch::zeros({floats_}, device_));
  while (nodes_.size() > 1) {
    const torch::Tensor right = nodes_.back();
    nodes_.pop_back();
    nodes_.back().add_(right);
  }
  torch::Tensor sum = nodes_.back();
  nodes_.clear();
  leaf_ = torch::Tensor();
  micro_batches_ = 0;
  return sum;
}

void UpdateTensors(const OptimiserOptions& options, const UpdateStep& step,
                   const torch::Tensor& weights, const torch::Tensor& gradient,
                   const std::vector<torch::Tensor>& states) {
  FOREBAY_CHECK(states.size() == OptimiserStates(options.kind));
  const torch::NoGradGuard no_grad;
  if (options.kind == OptimiserKind::kSgd) {
    UpdateSgd(options, step, weights, gradient, states[0]);
  } else {
    UpdateAdamW(options, step, weights, gradient, states[0], states[1]);
  }
}

// The conversion copies: how kernels sum may depend on where memory begins.
double SquaredNorm(const torch::Tensor& values) {
  return values.to(torch::kFloat64).square().sum().item<double>();
}

}  // namespace forebay::train
