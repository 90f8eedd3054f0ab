#include "trainer/exec/lenet.h"

namespace forebay::train {
namespace {

torch::nn::Conv2dOptions Convolution(std::int64_t in, std::int64_t out) {
  return torch::nn::Conv2dOptions(in, out, 5).padding(2);
}

}  // namespace

LeNet::LeNet(const LeNetOptions& options) {
  const std::int64_t wide = 2 * options.channels;
  const std::int64_t pooled_side = kLeNetSide / 4;
  conv1_ = register_module("conv1", torch::nn::Conv2d(Convolution(1, options.channels)));
  conv2_ = register_module("conv2", torch::nn::Conv2d(Convolution(options.channels, wide)));
  linear1_ = register_module(
      "linear1", torch::nn::Linear(wide * pooled_side * pooled_side, options.hidden));
  linear2_ = register_module("linear2", torch::nn::Linear(options.hidden, options.classes));
}

torch::Tensor LeNet::Forward(const torch::Tensor& images) {
  // Pooling before the ReLU gives the same values as after it, with a quarter of its work.
  torch::Tensor x = torch::relu(torch::max_pool2d(conv1_->forward(images), 2));
  x = torch::relu(torch::max_pool2d(conv2_->forward(x), 2));
  x = torch::relu(linear1_->forward(x.flatten(1)));
  return linear2_->forward(x);
}

}  // namespace forebay::train
