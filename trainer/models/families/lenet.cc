// LeNet: LeCun et al., "Gradient-based learning applied to document recognition", 1998; with ReLU
// and max pooling, without dropout and batch statistics. It is the default model, and the shortest
// example of a family. Parts: conv1, conv2, linear1, linear2. {n, C, H, W} -> {n, outputs}.
#include <fmt/format.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>

#include "trainer/exec/model.h"
#include "trainer/models/sample_losses.h"

namespace forebay::train {
namespace {

// The weights of a torch layer as a part's own, so that they are called "conv1.weight".
class Weights : public Part {
 protected:
  template <typename Layer>
  void Take(const Layer& layer) {
    weight_ = register_parameter("weight", layer->weight);
    bias_ = register_parameter("bias", layer->bias);
  }

  torch::Tensor weight_;
  torch::Tensor bias_;
};

// 5x5, padded so that only pooling changes the size.
class Convolution final : public Weights {
 public:
  Convolution(std::int64_t in, std::int64_t out) {
    Take(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kKernel).padding(kKernel / 2)));
  }

  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    const torch::Tensor x = torch::conv2d(inputs[0], weight_, bias_, 1, kKernel / 2);
    // Pooling before the ReLU gives the same values as after it, with a quarter of its work.
    return torch::relu(torch::max_pool2d(x, 2));
  }

 private:
  static constexpr std::int64_t kKernel = 5;
};

// The last one gives the outputs as they are: the loss has the softmax.
class Linear final : public Weights {
 public:
  Linear(std::int64_t in, std::int64_t out, bool last) : last_(last) {
    // Only the layer's weights are kept, as torch has drawn them; the layer itself goes.
    Take(torch::nn::Linear(in, out));
  }

  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    // Flattening changes nothing for the second layer, whose input is flat.
    const torch::Tensor x = torch::nn::functional::linear(inputs[0].flatten(1), weight_, bias_);
    return last_ ? x : torch::relu(x);
  }

 private:
  bool last_;
};

constexpr ModelSetting kSettings[] = {
    {"channels", 16, 1, 4096, true, true, "of the first convolution; the second has twice as many"},
    {"hidden", 128, 1, 65536, true, true, "width of the fully connected layer"},
    kLabelSmoothing,
};

constexpr ModelPreset kPresets[] = {
    {"lenet", {1, 28, 28}, 10},
    {"lenet-micro", {1, 8, 8}, 3, {{"channels", 3}, {"hidden", 12}}},
};

constexpr const LossKind* kLosses[] = {&kCrossEntropy, &kSquaredError, &kAbsoluteError};

// Two poolings leave something of every side.
Status CheckSides(const ModelSizes& sizes) {
  if (std::min(sizes.shape[1], sizes.shape[2]) >= 4) return {};
  return RefusedModel(sizes.name,
                      fmt::format("images of {}; sides of at least 4", sizes.ShapeText()));
}

std::vector<ModelPart> LeNetParts(const ModelSizes& sizes) {
  const std::int64_t channels = sizes.Whole("channels");
  const std::int64_t hidden = sizes.Whole("hidden");
  // Two poolings divide each side by four.
  const std::int64_t pooled = 2 * channels * (sizes.shape[1] / 4) * (sizes.shape[2] / 4);
  return {
      {.name = "conv1", .make = PartMaker<Convolution>(sizes.shape[0], channels)},
      {.name = "conv2", .make = PartMaker<Convolution>(channels, 2 * channels)},
      {.name = "linear1", .make = PartMaker<Linear>(pooled, hidden, false)},
      {.name = "linear2", .make = PartMaker<Linear>(hidden, sizes.outputs, true)},
  };
}

}  // namespace

extern const ModelFamily kLeNet = {.name = "LeNet",
                                   .axes = 3,
                                   .presets = kPresets,
                                   .settings = kSettings,
                                   .losses = kLosses,
                                   .foreign_names = {},
                                   .check = &CheckSides,
                                   .parts = &LeNetParts};

}  // namespace forebay::train
