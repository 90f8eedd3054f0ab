// Dosovitskiy et al., "An image is worth 16x16 words", 2021, as timm has it: class token, learnt
// positions, normalisation first. Parts: patches; attention and perceptron of each block as parts
// of their own; head. {n, C, H, W} -> {n, outputs}.
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>

#include "trainer/exec/layers.h"
#include "trainer/models/sample_losses.h"

namespace forebay::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr double kDeviation = 0.02;  // of first weights

// All numbers of the network: each part takes those that it needs.
struct TransformerShape {
  std::int64_t channels = 0;
  std::int64_t patches = 0;
  std::int64_t patch = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t hidden = 0;  // width of the perceptron
  std::int64_t outputs = 0;
  double dropout = 0;
  double attention_dropout = 0;
};

// A linear layer with timm's first weights.
torch::nn::Linear Projection(std::int64_t in, std::int64_t out) {
  torch::nn::Linear linear(in, out);
  torch::nn::init::normal_(linear->weight, 0, kDeviation);
  torch::nn::init::zeros_(linear->bias);
  return linear;
}

// On a GPU one kernel for product and bias, where Linear takes two.
torch::Tensor Apply(torch::nn::Linear& linear, const torch::Tensor& input) {
  return input.is_cpu() ? linear->forward(input)
                        : torch::linear(input, linear->weight, linear->bias);
}

// Over a token's numbers, with timm's epsilon.
torch::nn::LayerNorm Normalisation(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-6));
}

// Patches as tokens behind the class token, with places.
class TransformerPatches final : public Part {
 public:
  explicit TransformerPatches(const TransformerShape& shape) : dropout_(shape.dropout) {
    class_token_ = register_parameter(
        "cls_token", torch::nn::init::normal_(torch::empty({1, 1, shape.width}), 0, 1e-6));
    place_ = register_parameter(
        "pos_embed", torch::nn::init::normal_(torch::empty({1, shape.patches + 1, shape.width}),
                                              0, kDeviation));
    patch_ = register_module(
        "proj", torch::nn::Conv2d(
                    torch::nn::Conv2dOptions(shape.channels, shape.width, shape.patch)
                        .stride(shape.patch)));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    // A convolution whose stride is its kernel: one product for each patch.
    const torch::Tensor tokens = patch_->forward(inputs[0]).flatten(2).transpose(1, 2);
    // One class token for all samples, without copies.
    const torch::Tensor first = class_token_.expand({tokens.size(0), -1, -1});
    return Dropout(torch::cat({first, tokens}, 1) + place_, dropout_, pass);
  }

 private:
  double dropout_;
  torch::Tensor class_token_;
  torch::Tensor place_;
  torch::nn::Conv2d patch_{nullptr};
};

// Normalisation, attention and the residual connection around both.
class TransformerAttention final : public Part {
 public:
  explicit TransformerAttention(const TransformerShape& shape) : shape_(shape) {
    norm_ = register_module("norm", Normalisation(shape.width));
    qkv_ = register_module("qkv", Projection(shape.width, 3 * shape.width));
    proj_ = register_module("proj", Projection(shape.width, shape.width));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    const torch::Tensor& x = inputs[0];
    const std::int64_t samples = x.size(0);
    const std::int64_t tokens = x.size(1);
    const std::int64_t head_width = shape_.width / shape_.heads;
    // One product for queries, keys and values of all heads.
    // The layout of the product is timm's, so that its weights fit without being rearranged.
    const Tensors qkv = Apply(qkv_, norm_->forward(x))
                            .reshape({samples, tokens, 3, shape_.heads, head_width})
                            .permute({2, 0, 3, 1, 4})
                            .unbind(0);
#if TORCH_VERSION_MAJOR >= 2
    // One kernel for both products and the softmax, which does not write the weights to memory. It
    // would draw dropout from the generator of the whole process.
    if (!x.is_cpu() && (!pass.training || shape_.attention_dropout == 0)) {
      const torch::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
                                      .transpose(1, 2)
                                      .reshape({samples, tokens, shape_.width});
      return x + Dropout(Apply(proj_, mixed), shape_.dropout, pass);
    }
#endif
    // So that products of long vectors do not saturate the softmax.
    const double scale = 1.0 / std::sqrt(static_cast<double>(head_width));
    const torch::Tensor weights =
        // The queries are scaled, which is cheaper than scaling the products.
        torch::softmax(torch::matmul(qkv[0] * scale, qkv[1].transpose(2, 3)), 3);
    const torch::Tensor mixed =
        torch::matmul(Dropout(weights, shape_.attention_dropout, pass), qkv[2])
            .transpose(1, 2)
            .reshape({samples, tokens, shape_.width});
    return x + Dropout(Apply(proj_, mixed), shape_.dropout, pass);
  }

 private:
  TransformerShape shape_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear qkv_{nullptr};
  torch::nn::Linear proj_{nullptr};
};

// Normalisation, two layers with GELU between them, and the residual connection around all.
class TransformerPerceptron final : public Part {
 public:
  explicit TransformerPerceptron(const TransformerShape& shape) : dropout_(shape.dropout) {
    norm_ = register_module("norm", Normalisation(shape.width));
    fc1_ = register_module("fc1", Projection(shape.width, shape.hidden));
    fc2_ = register_module("fc2", Projection(shape.hidden, shape.width));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    const torch::Tensor hidden = torch::gelu(Apply(fc1_, norm_->forward(inputs[0])));
    const torch::Tensor output = Apply(fc2_, Dropout(hidden, dropout_, pass));
    return inputs[0] + Dropout(output, dropout_, pass);
  }

 private:
  double dropout_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear fc1_{nullptr};
  torch::nn::Linear fc2_{nullptr};
};

// Only the class token is used: it has attended to all patches.
class TransformerHead final : public Part {
 public:
  explicit TransformerHead(const TransformerShape& shape) {
    norm_ = register_module("norm", Normalisation(shape.width));
    linear_ = register_module("fc", Projection(shape.width, shape.outputs));
  }
  // Normalisation is token by token, so that of the class token is enough.
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return Apply(linear_, norm_->forward(inputs[0].select(1, 0)));
  }

 private:
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear linear_{nullptr};
};

constexpr ModelSetting kSettings[] = {
    {"patch", 16, 1, 1024, true, true, "pixels of a patch's side"},
    {"width", 192, 1, 65536, true, true, "of a token"},
    {"depth", 12, 1, 1000, true, true, "pairs of attention and perceptron"},
    {"heads", 3, 1, 1024, true, true, "of attention; they divide the width"},
    {"mlp_ratio", 4, 0.01, 64, false, true, "width of the perceptron over that of a token"},
    {"dropout", 0, 0, 0.99, false, false, "of embeddings, projections and perceptrons"},
    {"attention_dropout", 0, 0, 0.99, false, false, "of attention weights"},
    kLabelSmoothing,
};

// Sizes of the paper, then those for small images and for tests.
constexpr ModelPreset kPresets[] = {
    {"vit-tiny", {3, 224, 224}, 1000},
    {"vit-small", {3, 224, 224}, 1000, {{"width", 384}, {"heads", 6}}},
    {"vit-base", {3, 224, 224}, 1000, {{"width", 768}, {"heads", 12}}},
    {"vit-large", {3, 224, 224}, 1000, {{"width", 1024}, {"depth", 24}, {"heads", 16}}},
    {"vit-huge",
     {3, 224, 224},
     1000,
     {{"patch", 14}, {"width", 1280}, {"depth", 32}, {"heads", 16}}},
    // For images of 28 x 28 pixels on a processor.
    {"vit-mini",
     {1, 28, 28},
     10,
     {{"patch", 4}, {"width", 64}, {"depth", 6}, {"heads", 4}, {"mlp_ratio", 2}}},
    {"vit-micro",
     {1, 8, 8},
     4,
     {{"patch", 4}, {"width", 12}, {"depth", 2}, {"heads", 2}, {"mlp_ratio", 2},
      {"dropout", 0.1}, {"attention_dropout", 0.1}}},
};

constexpr const LossKind* kLosses[] = {&kCrossEntropy, &kSquaredError, &kAbsoluteError};

// The first rule that fits counts, so longer prefixes come first.
constexpr NameRule kTimmNames[] = {
    {"patches.proj.", "patch_embed.proj."},
    // The class token and the positions, which timm has at the top.
    {"patches.", ""},
    {"attention#.norm.", "blocks.#.norm1."},
    {"attention#.", "blocks.#.attn."},
    {"mlp#.norm.", "blocks.#.norm2."},
    {"mlp#.", "blocks.#.mlp."},
    {"head.norm.", "norm."},
    {"head.fc.", "head."},
};

// Patches do not overlap and cover the image; heads share the width equally.
Status CheckPatchesAndHeads(const ModelSizes& sizes) {
  const std::int64_t patch = sizes.Whole("patch");
  if (sizes.shape[1] % patch != 0 || sizes.shape[2] % patch != 0) {
    return RefusedModel(sizes.name, fmt::format("images of {} are no whole number of patches of {}",
                                                sizes.ShapeText(), patch));
  }
  if (sizes.Whole("width") % sizes.Whole("heads") == 0) return {};
  return RefusedModel(sizes.name, fmt::format("a width of {} is no multiple of {} heads",
                                              sizes.Whole("width"), sizes.Whole("heads")));
}

std::vector<ModelPart> VisionTransformerParts(const ModelSizes& sizes) {
  const std::int64_t patch = sizes.Whole("patch");
  const std::int64_t width = sizes.Whole("width");
  // Rounded down, and at least 1.
  const double hidden = static_cast<double>(width) * sizes.Number("mlp_ratio");
  // Every block has the same shape, so one description serves all parts.
  const TransformerShape shape = {
      .channels = sizes.shape[0],
      .patches = (sizes.shape[1] / patch) * (sizes.shape[2] / patch),
      .patch = patch,
      .width = width,
      .heads = sizes.Whole("heads"),
      .hidden = std::max<std::int64_t>(1, static_cast<std::int64_t>(hidden)),
      .outputs = sizes.outputs,
      .dropout = sizes.Number("dropout"),
      .attention_dropout = sizes.Number("attention_dropout")};
  std::vector<ModelPart> parts = {
      {.name = "patches", .make = PartMaker<TransformerPatches>(shape)}};
  for (std::int64_t block = 0; block < sizes.Whole("depth"); ++block) {
    // Two parts for each block, so that a pipeline can be cut within it.
    parts.push_back({.name = fmt::format("attention{}", block),
                     .make = PartMaker<TransformerAttention>(shape)});
    parts.push_back({.name = fmt::format("mlp{}", block),
                     .make = PartMaker<TransformerPerceptron>(shape)});
  }
  parts.push_back({.name = "head", .make = PartMaker<TransformerHead>(shape)});
  return parts;
}

}  // namespace

extern const ModelFamily kVisionTransformer = {.name = "ViT",
                                               .axes = 3,
                                               .presets = kPresets,
                                               .settings = kSettings,
                                               .losses = kLosses,
                                               .foreign_names = kTimmNames,
                                               .check = &CheckPatchesAndHeads,
                                               .parts = &VisionTransformerParts};

}  // namespace forebay::train
