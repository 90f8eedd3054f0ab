// The 3D U-Net of MLPerf training (Isensee et al., "No new-net", 2018; Cicek et al., 2016): two
// convolutions a level, each with instance normalisation and ReLU; strided ones lead down,
// transposed ones up; `levels` skips over the bottom. Parts: every convolution.
// {n, C, D, H, W} -> {n, outputs, D, H, W}.
#include <fmt/format.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>

#include "trainer/exec/model.h"
#include "trainer/models/sample_losses.h"

namespace forebay::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

// Channels, and 2 as the stride of a convolution that leads down a level.
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
    // Parameters of the unit itself, so that every tensor of a part is named by the unit.
    scale_ = register_parameter("scale", torch::ones({shape.out}));
    shift_ = register_parameter("shift", torch::zeros({shape.out}));
  }
  torch::Tensor Forward(const torch::Tensor& input) {
    // Without running statistics: each sample is normalised by itself, so the layout cannot matter.
    return torch::relu(torch::instance_norm(conv_->forward(input), scale_, shift_, {}, {},
                                            /*use_input_stats=*/true, /*momentum=*/0.1,
                                            /*eps=*/1e-5, /*cudnn_enabled=*/false));
  }

 private:
  torch::nn::Conv3d conv_{nullptr};
  torch::Tensor scale_;
  torch::Tensor shift_;
};

// One unit as a part: a pipeline may be cut between any two convolutions.
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
    // inputs[0] comes from the part before, inputs[1] is the skip that `takes` names.
    return unit_->Forward(torch::cat({grow_->forward(inputs[0]), inputs[1]}, 1));
  }

 private:
  torch::nn::ConvTranspose3d grow_{nullptr};
  std::shared_ptr<NormalisedConvolution> unit_;
};

// A 1x1x1 convolution: the logits of each voxel's classes.
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

constexpr ModelSetting kSettings[] = {
    {"width", 32, 1, 4096, true, true, "channels of the first level; the next doubles"},
    {"width_max", 320, 1, 65536, true, true, "channels of the widest level"},
    {"levels", 5, 1, 16, true, true, "that hand a skip on; the bottom lies below them"},
};

constexpr ModelPreset kPresets[] = {
    {"unet3d", {1, 128, 128, 128}, 3},
    {"unet3d-micro", {1, 8, 8, 8}, 3, {{"width", 4}, {"width_max", 6}, {"levels", 2}}},
};

constexpr const LossKind* kLosses[] = {&kDiceCrossEntropy};

// Sides must halve exactly at every level, so that what comes up fits the skip.
Status CheckLevels(const ModelSizes& sizes) {
  const std::int64_t scale = std::int64_t{1} << sizes.Whole("levels");
  const std::span<const std::int64_t> sides = std::span(sizes.shape).subspan(1);
  const bool divides = std::ranges::all_of(
      sides, [scale](std::int64_t side) { return side % scale == 0; });
  // Instance normalisation needs two voxels at least.
  if (!divides || *std::ranges::max_element(sides) == scale) {
    return RefusedModel(
        sizes.name, fmt::format("volumes of {}: with {} levels, sides are multiples of {} and one "
                                "at least is larger",
                                sizes.ShapeText(), sizes.Whole("levels"), scale));
  }
  if (sizes.outputs >= 2) return {};
  return RefusedModel(sizes.name, "one class; two at least, the first is the background");
}

std::vector<ModelPart> UNet3dParts(const ModelSizes& sizes) {
  const std::int64_t levels = sizes.Whole("levels");
  const auto width = [&](std::int64_t level) {
    // The bottom has the width of the last level.
    // Width and levels are bounded (4096 and 16), so the shift stays within 64 bits.
    return std::min(sizes.Whole("width") << std::min(level, levels - 1),
                    sizes.Whole("width_max"));
  };
  const auto convolution = [](std::string name, const VolumeShape& shape) {
    return ModelPart{.name = std::move(name), .make = PartMaker<UNetConvolution>(shape)};
  };
  std::vector<ModelPart> parts;
  std::int64_t channels = sizes.shape[0];
  // Downwards, and the bottom below the last level.
  for (std::int64_t level = 0; level <= levels; ++level) {
    const std::string name = level == levels ? "bottom" : fmt::format("down{}", level);
    const std::int64_t out = width(level);
    parts.push_back(convolution(
        name + ".conv1", {.in = channels, .out = out, .stride = level == 0 ? 1 : 2}));
    parts.push_back(convolution(name + ".conv2", {.in = out, .out = out}));
    channels = out;
  }
  // Upwards each level takes the skip of its own size, by name.
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

}  // namespace

extern const ModelFamily kUNet3d = {.name = "3D U-Net",
                                    .axes = 4,
                                    .presets = kPresets,
                                    .settings = kSettings,
                                    .losses = kLosses,
                                    .foreign_names = {},
                                    .check = &CheckLevels,
                                    .parts = &UNet3dParts};

}  // namespace forebay::train
