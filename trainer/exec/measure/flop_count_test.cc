// Operations of products and convolutions, forward and backward, against counts from their shapes.
#include "trainer/exec/measure/flop_count.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/linear.h>
#include <torch/types.h>

#include <functional>

namespace forebay::train {
namespace {

double FlopsOf(const std::function<void()>& work) {
  const FlopCount count;
  work();
  return count.flops();
}

torch::Tensor Parameter(std::vector<std::int64_t> shape) {
  return torch::ones(shape).requires_grad_();
}

TEST(FlopCountTest, AProductIsTwiceItsThreeExtents) {
  const torch::Tensor a = torch::ones({3, 5});
  const torch::Tensor b = torch::ones({5, 7});
  const torch::Tensor bias = torch::ones({7});
  EXPECT_EQ(FlopsOf([&] { torch::mm(a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(FlopsOf([&] { torch::addmm(bias, a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(FlopsOf([&] { torch::matmul(torch::ones({4, 3, 5}), torch::ones({4, 5, 7})); }),
            4 * 2 * 3 * 5 * 7);
}

TEST(FlopCountTest, ALinearLayersBackwardIsTwiceItsForward) {
  const torch::Tensor weight = Parameter({7, 5});
  const torch::Tensor bias = Parameter({7});
  for (const bool wants_input : {false, true}) {
    const torch::Tensor x = torch::ones({3, 5}).requires_grad_(wants_input);
    torch::Tensor y;
    EXPECT_EQ(FlopsOf([&] { y = torch::nn::functional::linear(x, weight, bias); }), 210);
    EXPECT_EQ(FlopsOf([&] { torch::autograd::backward({y.sum()}, {}); }),
              wants_input ? 420 : 210);
  }
}

TEST(FlopCountTest, ConvolutionsCountWhatTheirOutputsTake) {
  const torch::Tensor x = torch::ones({2, 4, 9, 9}).requires_grad_();
  const torch::Tensor weight = Parameter({6, 2, 3, 3});  // two groups
  torch::Tensor y;
  const double forward = 2.0 * (2 * 6 * 5 * 5) * (2 * 3 * 3);
  EXPECT_EQ(FlopsOf([&] { y = torch::conv2d(x, weight, {}, 2, 1, 1, 2); }), forward);
  ASSERT_EQ(y.size(2), 5);
  EXPECT_EQ(FlopsOf([&] { torch::autograd::backward({y.sum()}, {}); }), 2 * forward);
}

TEST(FlopCountTest, VolumesAndTransposedConvolutionsCount) {
  const torch::Tensor x = torch::ones({1, 3, 4, 4, 4});
  const torch::Tensor weight = Parameter({8, 3, 3, 3, 3});
  EXPECT_EQ(FlopsOf([&] { torch::conv3d(x, weight, {}, 1, 1); }),
            2.0 * (8 * 4 * 4 * 4) * (3 * 3 * 3 * 3));
  const torch::Tensor small = torch::ones({1, 8, 2, 2, 2});
  const torch::Tensor up = Parameter({8, 3, 2, 2, 2});
  // Every input element meets each output channel's weights once.
  EXPECT_EQ(FlopsOf([&] { torch::conv_transpose3d(small, up, {}, 2); }),
            2.0 * (8 * 2 * 2 * 2) * (3 * 2 * 2 * 2));
}

TEST(FlopCountTest, OtherOperatorsAreNotCounted) {
  const torch::Tensor x = torch::ones({64, 64});
  EXPECT_EQ(FlopsOf([&] { torch::softmax(torch::relu(x * x + x), 1).sum(); }), 0);
}

TEST(FlopCountTest, CountsAnewEachTimeAndNothingInBetween) {
  const torch::Tensor a = torch::ones({2, 2});
  const auto product = [&] { torch::mm(a, a); };
  EXPECT_EQ(FlopsOf(product), 16);
  product();
  EXPECT_EQ(FlopsOf(product), 16);
}

}  // namespace
}  // namespace forebay::train
