// LeNet: two convolutions and two linear layers for small one-channel images (LeCun et al.,
// "Gradient-based learning applied to document recognition", 1998; with ReLU and max pooling).
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace forebay::train {

inline constexpr std::int64_t kLeNetSide = 28;  // pixels

struct LeNetOptions {
  std::int64_t channels = 16;
  std::int64_t hidden = 128;
  std::int64_t classes = 10;
};

// No dropout and no batch statistics: the loss depends on weights and batch alone, so that a
// resumed run and a run on more ranks compute the same.
class LeNet : public torch::nn::Module {
 public:
  explicit LeNet(const LeNetOptions& options);

  // {n, 1, 28, 28} float -> {n, classes} logits.
  torch::Tensor Forward(const torch::Tensor& images);

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::Linear linear1_{nullptr};
  torch::nn::Linear linear2_{nullptr};
};

}  // namespace forebay::train
