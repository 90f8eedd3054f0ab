#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <utility>

#include "trainer/exec/layers.h"
#include "trainer/models/networks.h"

namespace forebay::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct ConvolutionShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t side = 1;
  std::int64_t stride = 1;
};

// Without bias, because normalisation follows; padded to keep the size where the stride is one.
torch::nn::Conv2d Convolution(const ConvolutionShape& shape) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(shape.in, shape.out, shape.side)
                             .stride(shape.stride)
                             .padding(shape.side / 2)
                             .bias(false));
  torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
  return conv;
}

class ResNetStem final : public Part {
 public:
  ResNetStem(std::int64_t in, std::int64_t width, bool is_small) : is_small_(is_small) {
    const ConvolutionShape shape = {.in = in,
                                    .out = width,
                                    .side = is_small ? 3 : 7,
                                    .stride = is_small ? 1 : 2};
    conv_ = register_module("conv1", Convolution(shape));
    norm_ = register_module("bn1", std::make_shared<BatchNorm>(width));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    torch::Tensor output = torch::relu(norm_->Forward(conv_->forward(inputs[0]), pass));
    return is_small_ ? output : torch::max_pool2d(output, 3, 2, 1);
  }

 private:
  bool is_small_;
  torch::nn::Conv2d conv_{nullptr};
  std::shared_ptr<BatchNorm> norm_;
};

// What a block's input becomes where its output has another shape.
class ResNetProjection final : public torch::nn::Module {
 public:
  ResNetProjection(std::int64_t in, std::int64_t out, std::int64_t stride) {
    conv_ = register_module("0", Convolution({.in = in, .out = out, .stride = stride}));
    norm_ = register_module("1", std::make_shared<BatchNorm>(out));
  }
  torch::Tensor Forward(const torch::Tensor& input, Pass& pass) {
    return norm_->Forward(conv_->forward(input), pass);
  }

 private:
  torch::nn::Conv2d conv_{nullptr};
  std::shared_ptr<BatchNorm> norm_;
};

struct BlockShape {
  std::int64_t in = 0;
  std::int64_t width = 0;
  std::int64_t out = 0;
  std::int64_t stride = 1;
  bool is_bottleneck = false;
};

class ResNetBlock final : public Part {
 public:
  explicit ResNetBlock(const BlockShape& shape) {
    if (shape.is_bottleneck) {
      Add({.in = shape.in, .out = shape.width});
      Add({.in = shape.width, .out = shape.width, .side = 3, .stride = shape.stride});
      Add({.in = shape.width, .out = shape.out});
    } else {
      Add({.in = shape.in, .out = shape.width, .side = 3, .stride = shape.stride});
      Add({.in = shape.width, .out = shape.out, .side = 3});
    }
    if (shape.stride != 1 || shape.in != shape.out) {
      projection_ = register_module(
          "downsample", std::make_shared<ResNetProjection>(shape.in, shape.out, shape.stride));
    }
  }

  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    torch::Tensor output = inputs[0];
    for (std::size_t at = 0; at < convs_.size(); ++at) {
      if (at > 0) output = torch::relu(output);
      output = norms_[at]->Forward(convs_[at]->forward(output), pass);
    }
    const torch::Tensor shortcut =
        projection_ == nullptr ? inputs[0] : projection_->Forward(inputs[0], pass);
    return torch::relu(output + shortcut);
  }

 private:
  void Add(const ConvolutionShape& shape) {
    const std::size_t number = convs_.size() + 1;
    convs_.push_back(register_module(fmt::format("conv{}", number), Convolution(shape)));
    norms_.push_back(register_module(fmt::format("bn{}", number),
                                     std::make_shared<BatchNorm>(shape.out)));
  }

  std::vector<torch::nn::Conv2d> convs_;
  std::vector<std::shared_ptr<BatchNorm>> norms_;
  std::shared_ptr<ResNetProjection> projection_;
};

class ResNetHead final : public Part {
 public:
  ResNetHead(std::int64_t in, std::int64_t outputs) {
    linear_ = register_module("fc", torch::nn::Linear(in, outputs));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return linear_->forward(inputs[0].mean({2, 3}));
  }

 private:
  torch::nn::Linear linear_{nullptr};
};

}  // namespace

std::vector<ModelPart> ResNetParts(const ModelSizes& sizes) {
  const std::int64_t width = sizes.Whole("width");
  const bool is_bottleneck = sizes.Whole("bottleneck") == 1;
  std::vector<ModelPart> parts = {
      {.name = "stem",
       .make = PartMaker<ResNetStem>(sizes.shape[0], width, sizes.Whole("small_stem") == 1)}};
  std::int64_t channels = width;
  for (int stage = 1; stage <= 4; ++stage) {
    const std::int64_t blocks = sizes.Whole(fmt::format("blocks{}", stage));
    for (std::int64_t block = 0; block < blocks; ++block) {
      BlockShape shape = {.in = channels,
                          .width = width << (stage - 1),
                          .stride = stage > 1 && block == 0 ? 2 : 1,
                          .is_bottleneck = is_bottleneck};
      shape.out = is_bottleneck ? 4 * shape.width : shape.width;
      channels = shape.out;
      parts.push_back({.name = fmt::format("layer{}.{}", stage, block),
                       .make = PartMaker<ResNetBlock>(shape)});
    }
  }
  parts.push_back({.name = "head", .make = PartMaker<ResNetHead>(channels, sizes.outputs)});
  return parts;
}

}  // namespace forebay::train
