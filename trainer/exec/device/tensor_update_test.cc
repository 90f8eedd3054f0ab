// Sums and updates by LibTorch have the bits of those over plain floats, for every optimiser and
// both orders of sums.
#include "trainer/exec/device/tensor_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

namespace forebay::train {
namespace {

constexpr std::int64_t kFloats = 5000;

std::span<float> FloatsOf(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

torch::Tensor Draw(std::uint64_t seed) {
  return torch::randn({kFloats}, at::make_generator<at::CPUGeneratorImpl>(seed));
}

class GradientSumBits : public ::testing::TestWithParam<SumOrder> {};

TEST_P(GradientSumBits, AreThoseOfPlainFloats) {
  constexpr std::int64_t kFirst = 1234;
  for (const std::uint64_t micro_batches : {1U, 2U, 3U, 7U, 8U}) {
    TensorGradientSum tensors(kFloats, GetParam(), TensorMemory(torch::kCPU));
    GradientSum floats(kFloats, GetParam());
    for (std::uint64_t at = 0; at < micro_batches; ++at) {
      const torch::Tensor gradient = Draw(at);
      tensors.Add(0, gradient.narrow(0, 0, kFirst).view({2, kFirst / 2}));
      tensors.Add(kFirst, gradient.narrow(0, kFirst, kFloats - kFirst));
      tensors.Next();
      floats.Add(0, FloatsOf(gradient));
      floats.Next();
    }
    EXPECT_EQ(tensors.micro_batches(), micro_batches);
    const torch::Tensor sum = tensors.Finish();
    const std::span<float> expected = floats.Finish();
    EXPECT_TRUE(std::ranges::equal(FloatsOf(sum), expected)) << micro_batches;
    EXPECT_EQ(tensors.micro_batches(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, GradientSumBits,
                         ::testing::Values(SumOrder::kTree, SumOrder::kLeftToRight));

TEST(TensorGradientSumTest, WhatHasNoGradientIsZero) {
  TensorGradientSum sum(4, SumOrder::kTree, TensorMemory(torch::kCPU));
  EXPECT_EQ(sum.Finish().sum().item<float>(), 0);
  for (int at = 0; at < 2; ++at) {
    sum.Add(0, torch::ones({2}));
    sum.AddNothing(2, 2);
    sum.Next();
  }
  EXPECT_TRUE(torch::equal(sum.Finish(), torch::tensor({2.0F, 2.0F, 0.0F, 0.0F})));
}

// The tensors in two pieces of different lengths, as runs of parameters are.
TensorsToUpdate InTwo(const torch::Tensor& weights, const torch::Tensor& gradient,
                      const std::vector<torch::Tensor>& states) {
  constexpr std::int64_t kFirst = 1111;
  const auto cut = [](const torch::Tensor& whole) {
    return whole.split_with_sizes({kFirst, kFloats - kFirst});
  };
  TensorsToUpdate tensors{.weights = cut(weights), .gradients = cut(gradient), .states = {}};
  for (const torch::Tensor& state : states) tensors.states.push_back(cut(state));
  return tensors;
}

class UpdateTensorsTest : public ::testing::TestWithParam<Optimiser> {};

TEST_P(UpdateTensorsTest, HasTheBitsOfUpdateWeights) {
  const OptimiserOptions options{.optimiser = FindOptimiser(GetParam().name).value()};
  const torch::Tensor tensor_weights = Draw(1);
  const torch::Tensor plain_weights = tensor_weights.clone();
  std::vector<torch::Tensor> states(options.optimiser->state_count());
  for (torch::Tensor& state : states) state = torch::zeros({kFloats});
  std::vector<std::vector<float>> plain(states.size(), std::vector<float>(kFloats));
  const std::vector<std::span<float>> spans(plain.begin(), plain.end());
  for (std::uint64_t number = 1; number <= 5; ++number) {
    const torch::Tensor gradient = Draw(10 + number);
    const UpdateStep step{.learning_rate = number == 5 ? 0.0 : 0.01 * static_cast<double>(number),
                          .weight_decay = number % 2 == 0 ? 0.0 : 0.05,
                          .gradient_scale = number > 2 ? 0.3 : 1.0,
                          .number = number};
    UpdateTensors(options, step, InTwo(tensor_weights, gradient, states));
    UpdateWeights(options, step, FloatsOf(plain_weights), FloatsOf(gradient), spans);
    EXPECT_TRUE(torch::equal(tensor_weights, plain_weights)) << number;
    for (std::size_t at = 0; at < states.size(); ++at) {
      EXPECT_TRUE(std::ranges::equal(FloatsOf(states[at]), plain[at])) << number;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, UpdateTensorsTest, ::testing::ValuesIn(Optimisers()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(SquaredNormTest, IsNearThatOfPlainFloats) {
  const torch::Tensor values = Draw(3);
  const double plain = SquaredNorm(std::span<const float>(FloatsOf(values)));
  EXPECT_NEAR(SquaredNorm(values), plain, 1e-12 * plain);
}

TEST(IsFiniteTest, FindsWhatIsInfiniteOrNoNumber) {
  EXPECT_TRUE(IsFinite(torch::zeros({0})));
  for (const float spoilt : {std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()}) {
    const torch::Tensor values = Draw(4);
    values[0] = std::numeric_limits<float>::max();
    EXPECT_TRUE(IsFinite(values));
    values[kFloats / 2] = spoilt;
    EXPECT_FALSE(IsFinite(values)) << spoilt;
  }
}

}  // namespace
}  // namespace forebay::train
