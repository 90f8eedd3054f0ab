#include "trainer/models/model_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

constexpr std::int64_t kExtentMax = 65'536;
constexpr std::int64_t kElementsMax = 1LL << 31;
constexpr std::int64_t kOutputsMax = 1'000'000;

constexpr std::string_view kCrossEntropy = "cross-entropy";
constexpr std::string_view kDiceCrossEntropy = "dice-cross-entropy";
constexpr std::string_view kSquaredError = "squared-error";
constexpr std::string_view kAbsoluteError = "absolute-error";
constexpr std::string_view kLosses[] = {kCrossEntropy, kDiceCrossEntropy, kSquaredError,
                                        kAbsoluteError};

constexpr ModelSetting kSmoothing = {"label_smoothing", 0, 0, 0.99, false, false,
                                     "of cross-entropy"};

constexpr ModelSetting kLeNetSettings[] = {
    {"channels", 16, 1, 4096, true, true, "of the first convolution; the second has twice as many"},
    {"hidden", 128, 1, 65536, true, true, "width of the fully connected layer"},
    kSmoothing,
};
constexpr ModelSetting kResNetSettings[] = {
    {"width", 64, 1, 4096, true, true, "channels of the stem and of the first stage"},
    {"blocks1", 2, 1, 256, true, true, "residual blocks of the first stage"},
    {"blocks2", 2, 0, 256, true, true, "of the second, which halves height and width"},
    {"blocks3", 2, 0, 256, true, true, "of the third"},
    {"blocks4", 2, 0, 256, true, true, "of the fourth"},
    {"bottleneck", 0, 0, 1, true, true, "1: blocks of three convolutions, four times as wide"},
    {"small_stem", 0, 0, 1, true, true, "1: a 3x3 stem, no stride, no pooling: for small images"},
    kSmoothing,
};
constexpr ModelSetting kVisionTransformerSettings[] = {
    {"patch", 16, 1, 1024, true, true, "pixels of a patch's side"},
    {"width", 192, 1, 65536, true, true, "of a token"},
    {"depth", 12, 1, 1000, true, true, "pairs of attention and perceptron"},
    {"heads", 3, 1, 1024, true, true, "of attention; they divide the width"},
    {"mlp_ratio", 4, 0.01, 64, false, true, "width of the perceptron over that of a token"},
    {"dropout", 0, 0, 0.99, false, false, "of embeddings, projections and perceptrons"},
    {"attention_dropout", 0, 0, 0.99, false, false, "of attention weights"},
    kSmoothing,
};
constexpr ModelSetting kUNet3dSettings[] = {
    {"width", 32, 1, 4096, true, true, "channels of the first level; the next doubles"},
    {"width_max", 320, 1, 65536, true, true, "channels of the widest level"},
    {"levels", 5, 1, 16, true, true, "that hand a skip on; the bottom lies below them"},
};
constexpr ModelSetting kCosmoFlowSettings[] = {
    {"width", 32, 1, 4096, true, true, "channels of the first convolution; the next doubles"},
    {"convolutions", 5, 1, 16, true, true, "each followed by pooling, which halves the cube"},
    {"hidden1", 128, 1, 65536, true, true, "width of the first fully connected layer"},
    {"hidden2", 64, 1, 65536, true, true, "of the second"},
    {"slope", 0.3, 0, 1, false, false, "of the leaky ReLU below zero"},
    {"dropout", 0.5, 0, 0.99, false, false, "after both"},
};

struct Family {
  ModelFamily family;
  std::string_view what;
  std::span<const ModelSetting> settings;
  std::size_t axes;  // of a sample
  std::string_view loss;
};
constexpr Family kFamilies[] = {
    {ModelFamily::kLeNet, "LeNet", kLeNetSettings, 3, kCrossEntropy},
    {ModelFamily::kResNet, "ResNet", kResNetSettings, 3, kCrossEntropy},
    {ModelFamily::kVisionTransformer, "ViT", kVisionTransformerSettings, 3, kCrossEntropy},
    {ModelFamily::kUNet3d, "3D U-Net", kUNet3dSettings, 4, kDiceCrossEntropy},
    {ModelFamily::kCosmoFlow, "CosmoFlow", kCosmoFlowSettings, 4, kSquaredError},
};

struct Override {
  std::string_view setting;
  double value;
};
// What is not overridden is the family's usual number; unused places are empty.
struct Preset {
  std::string_view name;
  ModelFamily family;
  std::int64_t shape[4];  // the axes of the family
  std::int64_t outputs;
  Override overrides[7];
};
constexpr Preset kPresets[] = {
    {"lenet", ModelFamily::kLeNet, {1, 28, 28}, 10, {}},
    {"lenet-micro", ModelFamily::kLeNet, {1, 8, 8}, 3, {{"channels", 3}, {"hidden", 12}}},
    {"resnet18", ModelFamily::kResNet, {3, 224, 224}, 1000, {}},
    {"resnet50",
     ModelFamily::kResNet,
     {3, 224, 224},
     1000,
     {{"blocks1", 3}, {"blocks2", 4}, {"blocks3", 6}, {"blocks4", 3}, {"bottleneck", 1}}},
    {"resnet-micro",
     ModelFamily::kResNet,
     {1, 8, 8},
     3,
     {{"width", 6}, {"blocks1", 1}, {"blocks3", 0}, {"blocks4", 0}, {"small_stem", 1}}},
    {"resnet-bottleneck-micro",
     ModelFamily::kResNet,
     {3, 16, 16},
     3,
     {{"width", 4}, {"blocks1", 1}, {"blocks2", 1}, {"blocks3", 0}, {"blocks4", 0},
      {"bottleneck", 1}}},
    {"vit-tiny", ModelFamily::kVisionTransformer, {3, 224, 224}, 1000, {}},
    {"vit-small",
     ModelFamily::kVisionTransformer,
     {3, 224, 224},
     1000,
     {{"width", 384}, {"heads", 6}}},
    {"vit-base",
     ModelFamily::kVisionTransformer,
     {3, 224, 224},
     1000,
     {{"width", 768}, {"heads", 12}}},
    {"vit-large",
     ModelFamily::kVisionTransformer,
     {3, 224, 224},
     1000,
     {{"width", 1024}, {"depth", 24}, {"heads", 16}}},
    {"vit-huge",
     ModelFamily::kVisionTransformer,
     {3, 224, 224},
     1000,
     {{"patch", 14}, {"width", 1280}, {"depth", 32}, {"heads", 16}}},
    // For images of 28 x 28 pixels on a processor.
    {"vit-mini",
     ModelFamily::kVisionTransformer,
     {1, 28, 28},
     10,
     {{"patch", 4}, {"width", 64}, {"depth", 6}, {"heads", 4}, {"mlp_ratio", 2}}},
    {"vit-micro",
     ModelFamily::kVisionTransformer,
     {1, 8, 8},
     4,
     {{"patch", 4}, {"width", 12}, {"depth", 2}, {"heads", 2}, {"mlp_ratio", 2},
      {"dropout", 0.1}, {"attention_dropout", 0.1}}},
    {"unet3d", ModelFamily::kUNet3d, {1, 128, 128, 128}, 3, {}},
    {"unet3d-micro",
     ModelFamily::kUNet3d,
     {1, 8, 8, 8},
     3,
     {{"width", 4}, {"width_max", 6}, {"levels", 2}}},
    {"cosmoflow", ModelFamily::kCosmoFlow, {4, 128, 128, 128}, 4, {}},
    {"cosmoflow-micro",
     ModelFamily::kCosmoFlow,
     {2, 8, 8, 8},
     4,
     {{"width", 4}, {"convolutions", 2}, {"hidden1", 16}, {"hidden2", 8}, {"dropout", 0.2}}},
};

const Family& FamilyOf(ModelFamily family) {
  const auto* const found = std::ranges::find(kFamilies, family, &Family::family);
  FOREBAY_CHECK(found != std::end(kFamilies));
  return *found;
}

template <typename... Arguments>
Error Refused(std::string_view model, fmt::format_string<Arguments...> text,
              Arguments&&... arguments) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("model {}: {}", model,
                           fmt::format(text, std::forward<Arguments>(arguments)...)));
}

std::string Joined(std::span<const std::string_view> names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string SettingsText(std::span<const ModelSetting> settings) {
  std::string text;
  for (const ModelSetting& setting : settings) {
    text += fmt::format("{}{} ({} to {})", text.empty() ? "" : ", ", setting.name,
                        setting.minimum, setting.maximum);
  }
  return text;
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  return fmt::format("{}", fmt::join(shape, "x"));
}

Status ApplySettings(const ModelRequest& request, const Family& family, ModelSizes& sizes) {
  for (const auto& [name, value] : request.settings) {
    const auto found = std::ranges::find(family.settings, name, &ModelSetting::name);
    if (found == family.settings.end()) {
      return Refused(request.name, "there is no setting {}; there are: {}", name,
                     SettingsText(family.settings));
    }
    // NaN compares false.
    if (!(value >= found->minimum && value <= found->maximum) ||
        (found->is_whole && value != std::floor(value))) {
      return Refused(request.name, "setting {} = {}: it is {} number from {} to {} ({})", name,
                     value, found->is_whole ? "a whole" : "a", found->minimum, found->maximum,
                     found->help);
    }
    sizes.settings[name] = value;
  }
  return {};
}

Status CheckShape(const ModelSizes& sizes, const Family& family) {
  const std::string_view axes = family.axes == 3 ? "{C, H, W}" : "{C, D, H, W}";
  if (sizes.shape.size() != family.axes) {
    return Refused(sizes.name, "samples of shape {}; it takes {}", ShapeText(sizes.shape), axes);
  }
  std::int64_t elements = 1;
  for (const std::int64_t extent : sizes.shape) {
    if (extent < 1 || extent > kExtentMax || elements > kElementsMax / extent) {
      return Refused(sizes.name,
                     "samples of shape {}: extents are from 1 to {}, elements up to {}",
                     ShapeText(sizes.shape), kExtentMax, kElementsMax);
    }
    elements *= extent;
  }
  if (sizes.outputs < 1 || sizes.outputs > kOutputsMax) {
    return Refused(sizes.name, "{} outputs; from 1 to {}", sizes.outputs, kOutputsMax);
  }
  return {};
}

// What shape and settings must be to each other.
Status CheckFit(const ModelSizes& sizes) {
  const std::span<const std::int64_t> sides = std::span(sizes.shape).subspan(1);
  const std::string shape = ShapeText(sizes.shape);
  const std::int64_t smallest = *std::ranges::min_element(sides);
  const auto divides_all = [&](std::int64_t divisor) {
    return std::ranges::all_of(sides, [&](std::int64_t side) { return side % divisor == 0; });
  };
  switch (sizes.family) {
    case ModelFamily::kLeNet:
      if (smallest < 4) return Refused(sizes.name, "images of {}; sides of at least 4", shape);
      return {};
    case ModelFamily::kResNet: return {};
    case ModelFamily::kVisionTransformer:
      if (!divides_all(sizes.Whole("patch"))) {
        return Refused(sizes.name, "images of {} are no whole number of patches of {}", shape,
                       sizes.Whole("patch"));
      }
      if (sizes.Whole("width") % sizes.Whole("heads") != 0) {
        return Refused(sizes.name, "a width of {} is no multiple of {} heads",
                       sizes.Whole("width"), sizes.Whole("heads"));
      }
      return {};
    case ModelFamily::kUNet3d: {
      const std::int64_t scale = std::int64_t{1} << sizes.Whole("levels");
      // Instance normalisation needs two voxels at least.
      if (!divides_all(scale) || *std::ranges::max_element(sides) == scale) {
        return Refused(sizes.name,
                       "volumes of {}: with {} levels, sides are multiples of {} and one at "
                       "least is larger",
                       shape, sizes.Whole("levels"), scale);
      }
      if (sizes.outputs < 2) {
        return Refused(sizes.name, "one class; two at least, the first is the background");
      }
      return {};
    }
    case ModelFamily::kCosmoFlow:
      if (smallest >> sizes.Whole("convolutions") < 1) {
        return Refused(sizes.name, "volumes of {} vanish after {} halvings", shape,
                       sizes.Whole("convolutions"));
      }
      return {};
  }
  return {};
}

Status CheckLoss(const ModelSizes& sizes, const Family& family) {
  const std::vector<std::string_view> losses = LossesOf(family.family);
  if (std::ranges::find(losses, sizes.loss) != losses.end()) return {};
  return Refused(sizes.name, "loss \"{}\"; {} takes {}", sizes.loss, family.what,
                 Joined(losses));
}

}  // namespace

double ModelSizes::Number(std::string_view setting) const {
  const auto found = settings.find(std::string(setting));
  FOREBAY_CHECK(found != settings.end());
  return found->second;
}

std::int64_t ModelSizes::Whole(std::string_view setting) const {
  return static_cast<std::int64_t>(Number(setting));
}

std::string ModelSizes::Title() const {
  std::string title = fmt::format("{} {} to {}", name, ShapeText(shape), outputs);
  for (const ModelSetting& setting : SettingsOf(family)) {
    if (!setting.shapes_parameters) continue;
    title += fmt::format(", {} {}", setting.name, Number(setting.name));
  }
  return title;
}

std::vector<std::string_view> ModelNames() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

std::vector<std::string_view> LossNames() { return {std::begin(kLosses), std::end(kLosses)}; }

std::string_view FamilyName(ModelFamily family) { return FamilyOf(family).what; }

std::vector<std::string_view> LossesOf(ModelFamily family) {
  if (family == ModelFamily::kUNet3d) return {kDiceCrossEntropy};
  std::vector<std::string_view> losses = {FamilyOf(family).loss};
  for (const std::string_view other : {kCrossEntropy, kSquaredError, kAbsoluteError}) {
    if (other != losses.front()) losses.push_back(other);
  }
  return losses;
}

std::span<const ModelSetting> SettingsOf(ModelFamily family) { return FamilyOf(family).settings; }

Result<ModelSizes> ResolveModel(const ModelRequest& request) {
  const auto* const preset = std::ranges::find(kPresets, request.name, &Preset::name);
  if (preset == std::end(kPresets)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("there is no model \"{}\"; there are: {}", request.name,
                             Joined(ModelNames())));
  }
  const Family& family = FamilyOf(preset->family);
  ModelSizes sizes;
  sizes.family = preset->family;
  sizes.name = request.name;
  sizes.shape = request.shape;
  if (sizes.shape.empty()) sizes.shape.assign(preset->shape, preset->shape + family.axes);
  sizes.outputs = request.outputs == 0 ? preset->outputs : request.outputs;
  sizes.loss = request.loss.empty() ? std::string(family.loss) : request.loss;
  for (const ModelSetting& setting : family.settings) {
    sizes.settings[std::string(setting.name)] = setting.usual;
  }
  for (const Override& own : preset->overrides) {
    if (!own.setting.empty()) sizes.settings[std::string(own.setting)] = own.value;
  }
  FOREBAY_TRY(ApplySettings(request, family, sizes));
  FOREBAY_TRY(CheckShape(sizes, family));
  FOREBAY_TRY(CheckLoss(sizes, family));
  FOREBAY_TRY(CheckFit(sizes));
  return sizes;
}

}  // namespace forebay::train
