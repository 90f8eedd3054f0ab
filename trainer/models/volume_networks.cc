#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "trainer/exec/layers.h"
#include "trainer/models/networks.h"

namespace forebay::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct VolumeShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t stride = 1;
};

// Convolution of 3x3x3, instance normalisation (Ulyanov et al., 2016), ReLU.
class NormalisedConvolution final : public torch::nn::Module {
 public:
  explicit NormalisedConvolution(const VolumeShape& shape) {
    conv_ = register_module("conv",
                            torch::nn::Conv3d(torch::nn::Conv3dOptions(shape.in, shape.out, 3)
                                                  .stride(shape.stride)
                                                  .padding(1)
                                                  .bias(false)));
    scale_ = register_parameter("scale", torch::ones({shape.out}));
    shift_ = register_parameter("shift", torch::zeros({shape.out}));
  }
  torch::Tensor Forward(const torch::Tensor& input) {
    return torch::relu(torch::instance_norm(conv_->forward(input), scale_, shift_, {}, {},
                                            /*use_input_stats=*/true, /*momentum=*/0.1,
                                            /*eps=*/1e-5, /*cudnn_enabled=*/false));
  }

 private:
  torch::nn::Conv3d conv_{nullptr};
  torch::Tensor scale_;
  torch::Tensor shift_;
};

class UNetConvolution final : public Part {
 public:
  explicit UNetConvolution(const VolumeShape& shape) {
    unit_ = register_module("unit", std::make_shared<NormalisedConvolution>(shape));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return unit_->Forward(inputs[0]);
  }

 private:
  std::shared_ptr<NormalisedConvolution> unit_;
};

// Doubles the volume, joins the skip of that size, convolves both.
class UNetJoin final : public Part {
 public:
  explicit UNetJoin(const VolumeShape& shape) {
    grow_ = register_module(
        "grow", torch::nn::ConvTranspose3d(
                    torch::nn::ConvTranspose3dOptions(shape.in, shape.out, 2).stride(2)));
    unit_ = register_module("unit", std::make_shared<NormalisedConvolution>(VolumeShape{
                                        .in = 2 * shape.out, .out = shape.out}));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return unit_->Forward(torch::cat({grow_->forward(inputs[0]), inputs[1]}, 1));
  }

 private:
  torch::nn::ConvTranspose3d grow_{nullptr};
  std::shared_ptr<NormalisedConvolution> unit_;
};

class UNetOutput final : public Part {
 public:
  UNetOutput(std::int64_t in, std::int64_t classes) {
    conv_ = register_module("conv", torch::nn::Conv3d(torch::nn::Conv3dOptions(in, classes, 1)));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return conv_->forward(inputs[0]);
  }

 private:
  torch::nn::Conv3d conv_{nullptr};
};

// Max pooling of 2x2x2. Torch's has no deterministic backward pass on a GPU.
torch::Tensor Halve(const torch::Tensor& input) {
  if (input.device().is_cpu()) return torch::max_pool3d(input, 2);
  torch::Tensor output = input;
  for (std::int64_t axis = 2; axis < 5; ++axis) {
    const std::int64_t even = output.size(axis) / 2 * 2;
    output = torch::maximum(output.slice(axis, 0, even, 2), output.slice(axis, 1, even, 2));
  }
  return output;
}

class CosmoConvolution final : public Part {
 public:
  CosmoConvolution(std::int64_t in, std::int64_t out, double slope) : slope_(slope) {
    conv_ = register_module(
        "conv", torch::nn::Conv3d(torch::nn::Conv3dOptions(in, out, 3).padding(1)));
    torch::nn::init::xavier_uniform_(conv_->weight);
    torch::nn::init::zeros_(conv_->bias);
  }
  // Pooling before the leaky ReLU gives the same values as after it, with an eighth of its work.
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return torch::leaky_relu(Halve(conv_->forward(inputs[0])), slope_);
  }

 private:
  double slope_;
  torch::nn::Conv3d conv_{nullptr};
};

struct DenseShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool is_last = false;
  double slope = 0;
  double dropout = 0;
};

class CosmoDense final : public Part {
 public:
  explicit CosmoDense(const DenseShape& shape) : shape_(shape) {
    linear_ = register_module("linear", torch::nn::Linear(shape.in, shape.out));
    torch::nn::init::xavier_uniform_(linear_->weight);
    torch::nn::init::zeros_(linear_->bias);
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    const torch::Tensor output = linear_->forward(inputs[0].flatten(1));
    // Somewhat beyond the targets, so that tanh reaches them.
    if (shape_.is_last) return 1.2 * torch::tanh(output);
    return Dropout(torch::leaky_relu(output, shape_.slope), shape_.dropout, pass);
  }

 private:
  DenseShape shape_;
  torch::nn::Linear linear_{nullptr};
};

}  // namespace

std::vector<ModelPart> UNet3dParts(const ModelSizes& sizes) {
  const std::int64_t levels = sizes.Whole("levels");
  const auto width = [&](std::int64_t level) {
    return std::min(sizes.Whole("width") << std::min(level, levels - 1),
                    sizes.Whole("width_max"));
  };
  const auto convolution = [](std::string name, const VolumeShape& shape) {
    return ModelPart{.name = std::move(name), .make = PartMaker<UNetConvolution>(shape)};
  };
  std::vector<ModelPart> parts;
  std::int64_t channels = sizes.shape[0];
  for (std::int64_t level = 0; level <= levels; ++level) {
    const std::string name = level == levels ? "bottom" : fmt::format("down{}", level);
    const std::int64_t out = width(level);
    parts.push_back(convolution(
        name + ".conv1", {.in = channels, .out = out, .stride = level == 0 ? 1 : 2}));
    parts.push_back(convolution(name + ".conv2", {.in = out, .out = out}));
    channels = out;
  }
  for (std::int64_t level = levels; level-- > 0;) {
    const VolumeShape shape = {.in = channels, .out = width(level)};
    parts.push_back({.name = fmt::format("up{}.conv1", level),
                     .make = PartMaker<UNetJoin>(shape),
                     .takes = {fmt::format("down{}.conv2", level)}});
    parts.push_back(convolution(fmt::format("up{}.conv2", level),
                                {.in = shape.out, .out = shape.out}));
    channels = shape.out;
  }
  parts.push_back({.name = "output", .make = PartMaker<UNetOutput>(channels, sizes.outputs)});
  return parts;
}

std::vector<ModelPart> CosmoFlowParts(const ModelSizes& sizes) {
  const double slope = sizes.Number("slope");
  const std::int64_t convolutions = sizes.Whole("convolutions");
  std::vector<ModelPart> parts;
  std::int64_t channels = sizes.shape[0];
  for (std::int64_t at = 0; at < convolutions; ++at) {
    const std::int64_t out = sizes.Whole("width") << at;
    parts.push_back({.name = fmt::format("conv{}", at + 1),
                     .make = PartMaker<CosmoConvolution>(channels, out, slope)});
    channels = out;
  }
  std::int64_t pooled = channels;
  for (std::size_t axis = 1; axis < 4; ++axis) pooled *= sizes.shape[axis] >> convolutions;
  const DenseShape dense1 = {.in = pooled,
                             .out = sizes.Whole("hidden1"),
                             .slope = slope,
                             .dropout = sizes.Number("dropout")};
  DenseShape dense2 = dense1;
  dense2.in = dense1.out;
  dense2.out = sizes.Whole("hidden2");
  const DenseShape output = {.in = dense2.out, .out = sizes.outputs, .is_last = true};
  parts.push_back({.name = "dense1", .make = PartMaker<CosmoDense>(dense1)});
  parts.push_back({.name = "dense2", .make = PartMaker<CosmoDense>(dense2)});
  parts.push_back({.name = "output", .make = PartMaker<CosmoDense>(output)});
  return parts;
}

}  // namespace forebay::train
