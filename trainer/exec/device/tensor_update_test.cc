// Sums and updates by LibTorch have the bits of those over plain floats, for every optimiser and
// both orders of sums.
#include "trainer/exec/device/tensor_update.h"

#include <gtest/gtest.h>

#include <algorithm>
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

class UpdateTensorsTest : public ::testing::TestWithParam<Optimiser> {};

TEST_P(UpdateTensorsTest, HasTheBitsOfUpdateWeights) {
  const OptimiserOptions options{.optimiser = FindOptimiser(GetParam().name).value()};
  const torch::Tensor tensor_weights = Draw(1);
  const torch::Tensor plain_weights = tensor_weights.clone();
  std::vector<torch::Tensor> tensors(options.optimiser->state_count());
  for (torch::Tensor& state : tensors) state = torch::zeros({kFloats});
  std::vector<std::vector<float>> plain(tensors.size(), std::vector<float>(kFloats));
  const std::vector<std::span<float>> spans(plain.begin(), plain.end());
  for (std::uint64_t number = 1; number <= 4; ++number) {
    const torch::Tensor gradient = Draw(10 + number);
    const UpdateStep step{.learning_rate = 0.01 * static_cast<double>(number),
                          .weight_decay = number % 2 == 0 ? 0.0 : 0.05,
                          .gradient_scale = number > 2 ? 0.3 : 1.0,
                          .number = number};
    UpdateTensors(options, step, tensor_weights, gradient, tensors);
    UpdateWeights(options, step, FloatsOf(plain_weights), FloatsOf(gradient), spans);
    EXPECT_TRUE(torch::equal(tensor_weights, plain_weights)) << number;
  }
}

INSTANTIATE_TEST_SUITE_P(All, UpdateTensorsTest, ::testing::ValuesIn(Optimisers()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(SquaredNormTest, IsNearThatOfPlainFloats) {
  const torch::Tensor values = Draw(3);
  const double plain = SquaredNorm(std::span<const float>(FloatsOf(values)));
  EXPECT_NEAR(SquaredNorm(values), plain, 1e-12 * plain);
}

}  // namespace
}  // namespace forebay::train
