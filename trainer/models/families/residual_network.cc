// He et al., "Deep residual learning", 2016, as torchvision has it: v1.5, the 3x3 convolution of a
// bottleneck has the stride. Parts: stem, residual blocks, head; named as torchvision names them.
// {n, C, H, W} -> {n, outputs}.
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <utility>

#include "trainer/exec/layers.h"
#include "trainer/models/sample_losses.h"

namespace forebay::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

// A square kernel of `side`.
struct ConvolutionShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t side = 1;
  std::int64_t stride = 1;
};

// Without bias, because normalisation follows; padded to keep the size where the stride is one.
torch::nn::Conv2d MakeConvolution(const ConvolutionShape& shape) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(shape.in, shape.out, shape.side)
                             .stride(shape.stride)
                             .padding(shape.side / 2)
                             .bias(false));
  // As torchvision initialises convolutions.
  torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
  return conv;
}

// Quarters height and width, unless images are small.
class ResNetStem final : public Part {
 public:
  ResNetStem(std::int64_t in, std::int64_t width, bool is_small) : is_small_(is_small) {
    const ConvolutionShape shape = {.in = in,
                                    .out = width,
                                    .side = is_small ? 3 : 7,
                                    .stride = is_small ? 1 : 2};
    conv_ = register_module("conv1", MakeConvolution(shape));
    norm_ = register_module("bn1", std::make_shared<BatchNorm>(width));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    torch::Tensor output = torch::relu(norm_->Forward(conv_->forward(inputs[0]), pass));
    // 3x3 with a stride of 2, as torchvision has it.
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
    // The names are those of torchvision's Sequential, so that its weights can be imported.
    conv_ = register_module("0", MakeConvolution({.in = in, .out = out, .stride = stride}));
    norm_ = register_module("1", std::make_shared<BatchNorm>(out));
  }
  torch::Tensor Forward(const torch::Tensor& input, Pass& pass) {
    return norm_->Forward(conv_->forward(input), pass);
  }

 private:
  torch::nn::Conv2d conv_{nullptr};
  std::shared_ptr<BatchNorm> norm_;
};

// `in` and `out` are channels of the block, `width` those between its convolutions.
struct BlockShape {
  std::int64_t in = 0;
  std::int64_t width = 0;
  std::int64_t out = 0;
  std::int64_t stride = 1;
  bool is_bottleneck = false;
};

// A part is a whole block, shortcut included: no skip leaves it.
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
    // Otherwise the input can be added as it is.
    if (shape.stride != 1 || shape.in != shape.out) {
      projection_ = register_module(
          "downsample", std::make_shared<ResNetProjection>(shape.in, shape.out, shape.stride));
    }
  }

  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    // No operation below writes to its input: `inputs[0]` is needed again for the shortcut.
    torch::Tensor output = inputs[0];
    for (std::size_t at = 0; at < convs_.size(); ++at) {
      // Between two convolutions; after the last one comes the sum with the shortcut first.
      if (at > 0) output = torch::relu(output);
      output = norms_[at]->Forward(convs_[at]->forward(output), pass);
    }
    const torch::Tensor shortcut =
        projection_ == nullptr ? inputs[0] : projection_->Forward(inputs[0], pass);
    return torch::relu(output + shortcut);
  }

 private:
  // Names count from 1, as torchvision's do.
  void Add(const ConvolutionShape& shape) {
    const std::size_t number = convs_.size() + 1;
    convs_.push_back(register_module(fmt::format("conv{}", number), MakeConvolution(shape)));
    norms_.push_back(register_module(fmt::format("bn{}", number),
                                     std::make_shared<BatchNorm>(shape.out)));
  }

  std::vector<torch::nn::Conv2d> convs_;
  std::vector<std::shared_ptr<BatchNorm>> norms_;
  std::shared_ptr<ResNetProjection> projection_;
};

// Mean over the image, then one product.
class ResNetHead final : public Part {
 public:
  ResNetHead(std::int64_t in, std::int64_t outputs) {
    linear_ = register_module("fc", torch::nn::Linear(in, outputs));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    // A mean and not adaptive pooling, whose backward pass is not deterministic on a GPU.
    return linear_->forward(inputs[0].mean({2, 3}));
  }

 private:
  torch::nn::Linear linear_{nullptr};
};

constexpr ModelSetting kSettings[] = {
    {"width", 64, 1, 4096, true, true, "channels of the stem and of the first stage"},
    {"blocks1", 2, 1, 256, true, true, "residual blocks of the first stage"},
    {"blocks2", 2, 0, 256, true, true, "of the second, which halves height and width"},
    {"blocks3", 2, 0, 256, true, true, "of the third"},
    {"blocks4", 2, 0, 256, true, true, "of the fourth"},
    {"bottleneck", 0, 0, 1, true, true, "1: blocks of three convolutions, four times as wide"},
    {"small_stem", 0, 0, 1, true, true, "1: a 3x3 stem, no stride, no pooling: for small images"},
    kLabelSmoothing,
};

// ResNet-18 is what the usual settings give; other sizes name what differs.
constexpr ModelPreset kPresets[] = {
    {"resnet18", {3, 224, 224}, 1000},
    {"resnet50",
     {3, 224, 224},
     1000,
     {{"blocks1", 3}, {"blocks2", 4}, {"blocks3", 6}, {"blocks4", 3}, {"bottleneck", 1}}},
    {"resnet-micro",
     {1, 8, 8},
     3,
     {{"width", 6}, {"blocks1", 1}, {"blocks3", 0}, {"blocks4", 0}, {"small_stem", 1}}},
    {"resnet-bottleneck-micro",
     {3, 16, 16},
     3,
     {{"width", 4}, {"blocks1", 1}, {"blocks2", 1}, {"blocks3", 0}, {"blocks4", 0},
      {"bottleneck", 1}}},
};

constexpr const LossKind* kLosses[] = {&kCrossEntropy, &kSquaredError, &kAbsoluteError};

// Blocks have torchvision's names as they are.
constexpr NameRule kTorchvisionNames[] = {
    {"stem.", ""},
    {"head.", ""},
};

std::vector<ModelPart> ResNetParts(const ModelSizes& sizes) {
  const std::int64_t width = sizes.Whole("width");
  const bool is_bottleneck = sizes.Whole("bottleneck") == 1;
  std::vector<ModelPart> parts = {
      {.name = "stem",
       .make = PartMaker<ResNetStem>(sizes.shape[0], width, sizes.Whole("small_stem") == 1)}};
  // Each stage but the first halves height and width in its first block, and doubles the channels.
  std::int64_t channels = width;
  for (int stage = 1; stage <= 4; ++stage) {
    const std::int64_t blocks = sizes.Whole(fmt::format("blocks{}", stage));
    for (std::int64_t block = 0; block < blocks; ++block) {
      BlockShape shape = {.in = channels,
                          .width = width << (stage - 1),
                          .stride = stage > 1 && block == 0 ? 2 : 1,
                          .is_bottleneck = is_bottleneck};
      // Four times, as in the paper; the next block's input has as many.
      shape.out = is_bottleneck ? 4 * shape.width : shape.width;
      channels = shape.out;
      parts.push_back({.name = fmt::format("layer{}.{}", stage, block),
                       .make = PartMaker<ResNetBlock>(shape)});
    }
  }
  parts.push_back({.name = "head", .make = PartMaker<ResNetHead>(channels, sizes.outputs)});
  return parts;
}

}  // namespace

extern const ModelFamily kResNet = {.name = "ResNet",
                                    .axes = 3,
                                    .presets = kPresets,
                                    .settings = kSettings,
                                    .losses = kLosses,
                                    .foreign_names = kTorchvisionNames,
                                    // Any size of images will do: every stage rounds up, and the
                                    // head takes the mean of what is left.
                                    .check = nullptr,
                                    .parts = &ResNetParts};

}  // namespace forebay::train
