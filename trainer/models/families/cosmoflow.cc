// The CosmoFlow network of MLPerf HPC (Mathuriya et al., 2018): convolutions of 3x3x3, leaky ReLU
// and max pooling, then three fully connected layers with dropout; the last ends in 1.2 tanh.
// Parts: every layer. {n, C, D, H, W} -> {n, outputs}, targets in [-1, 1]. The reference trains
// with SGD, momentum 0.9, batches of 64 samples at a learning rate of 1e-3 that grows with the
// batch: 4 epochs of linear warm-up, times 0.25 from epoch 32 on, times 0.125 from 64 on, 128 in
// all, squared error; target: a mean absolute error of 0.124.
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "trainer/exec/layers.h"
#include "trainer/models/sample_losses.h"

namespace forebay::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

// Max pooling of 2x2x2. Torch's has no deterministic backward pass on a GPU.
torch::Tensor Halve(const torch::Tensor& input) {
  if (input.device().is_cpu()) return torch::max_pool3d(input, 2);
  torch::Tensor output = input;
  // The maximum of neighbours along one axis after the other is that of the cube.
  for (std::int64_t axis = 2; axis < 5; ++axis) {
    const std::int64_t even = output.size(axis) / 2 * 2;
    output = torch::maximum(output.slice(axis, 0, even, 2), output.slice(axis, 1, even, 2));
  }
  return output;
}

// Convolution, pooling and leaky ReLU: one part, because only what is half as large leaves it.
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

// A fully connected layer. The last one has neither dropout nor a leaky ReLU.
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

constexpr ModelSetting kSettings[] = {
    {"width", 32, 1, 4096, true, true, "channels of the first convolution; the next doubles"},
    {"convolutions", 5, 1, 16, true, true, "each followed by pooling, which halves the cube"},
    {"hidden1", 128, 1, 65536, true, true, "width of the first fully connected layer"},
    {"hidden2", 64, 1, 65536, true, true, "of the second"},
    {"slope", 0.3, 0, 1, false, false, "of the leaky ReLU below zero"},
    {"dropout", 0.5, 0, 0.99, false, false, "after both"},
};

constexpr ModelPreset kPresets[] = {
    {"cosmoflow", {4, 128, 128, 128}, 4},
    {"cosmoflow-micro",
     {2, 8, 8, 8},
     4,
     {{"width", 4}, {"convolutions", 2}, {"hidden1", 16}, {"hidden2", 8}, {"dropout", 0.2}}},
};

constexpr const LossKind* kLosses[] = {&kSquaredError, &kCrossEntropy, &kAbsoluteError};

// Every convolution halves the sides, rounded down; something must be left of each.
Status CheckHalvings(const ModelSizes& sizes) {
  const std::int64_t smallest =
      *std::ranges::min_element(sizes.shape.begin() + 1, sizes.shape.end());
  if (smallest >> sizes.Whole("convolutions") >= 1) return {};
  return RefusedModel(sizes.name, fmt::format("volumes of {} vanish after {} halvings",
                                              sizes.ShapeText(), sizes.Whole("convolutions")));
}

std::vector<ModelPart> CosmoFlowParts(const ModelSizes& sizes) {
  const double slope = sizes.Number("slope");
  const std::int64_t convolutions = sizes.Whole("convolutions");
  std::vector<ModelPart> parts;
  std::int64_t channels = sizes.shape[0];
  for (std::int64_t at = 0; at < convolutions; ++at) {
    // Channels double as the cube is halved.
    const std::int64_t out = sizes.Whole("width") << at;
    parts.push_back({.name = fmt::format("conv{}", at + 1),
                     .make = PartMaker<CosmoConvolution>(channels, out, slope)});
    channels = out;
  }
  // What the last pooling leaves of a sample, as one vector.
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

}  // namespace

extern const ModelFamily kCosmoFlow = {.name = "CosmoFlow",
                                       .axes = 4,
                                       .presets = kPresets,
                                       .settings = kSettings,
                                       .losses = kLosses,
                                       .foreign_names = {},
                                       .check = &CheckHalvings,
                                       .parts = &CosmoFlowParts};

}  // namespace forebay::train
