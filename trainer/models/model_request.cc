// From a name and a few numbers to checked sizes. Values come from the family's usual settings,
// then the preset, then the request. Every refusal names what would be allowed, because requests
// come from command lines.
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

// Bounds of what can be asked for. They keep products of sizes within 64 bits, and refuse a
// mistyped number before memory is taken for it.
constexpr std::int64_t kExtentMax = 65'536;
constexpr std::int64_t kElementsMax = 1LL << 31;
constexpr std::int64_t kOutputsMax = 1'000'000;

struct FoundPreset {
  const ModelFamily* family = nullptr;
  const ModelPreset* preset = nullptr;
};

// Names of presets are unique over all families.
FoundPreset FindPreset(std::string_view name) {
  for (const ModelFamily* const family : ModelFamilies()) {
    for (const ModelPreset& preset : family->presets) {
      if (preset.name == name) return {.family = family, .preset = &preset};
    }
  }
  return {};
}

// RefusedModel with a formatted reason.
template <typename... Arguments>
Error Refused(std::string_view model, fmt::format_string<Arguments...> text,
              Arguments&&... arguments) {
  return RefusedModel(model, fmt::format(text, std::forward<Arguments>(arguments)...));
}

// For the message: "patch (1 to 1024), width (1 to 65536)".
std::string SettingsText(std::span<const ModelSetting> settings) {
  std::string text;
  for (const ModelSetting& setting : settings) {
    text += fmt::format("{}{} ({} to {})", text.empty() ? "" : ", ", setting.name,
                        setting.minimum, setting.maximum);
  }
  return text;
}

// Takes the request's settings over those that are there, each within its bounds.
Status ApplySettings(const ModelRequest& request, const ModelFamily& family, ModelSizes& sizes) {
  for (const auto& [name, value] : request.settings) {
    const auto found = std::ranges::find(family.settings, name, &ModelSetting::name);
    if (found == family.settings.end()) {
      return Refused(request.name, "there is no setting {}; there are: {}", name,
                     SettingsText(family.settings));
    }
    // The negation refuses NaN as well, which compares false.
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

Status CheckShape(const ModelSizes& sizes, const ModelFamily& family) {
  const std::string_view axes = family.axes == 3 ? "{C, H, W}" : "{C, D, H, W}";
  if (sizes.shape.size() != family.axes) {
    return Refused(sizes.name, "samples of shape {}; it takes {}", sizes.ShapeText(), axes);
  }
  std::int64_t elements = 1;
  for (const std::int64_t extent : sizes.shape) {
    // The check divides, because the product itself may overflow.
    if (extent < 1 || extent > kExtentMax || elements > kElementsMax / extent) {
      return Refused(sizes.name,
                     "samples of shape {}: extents are from 1 to {}, elements up to {}",
                     sizes.ShapeText(), kExtentMax, kElementsMax);
    }
    elements *= extent;
  }
  if (sizes.outputs < 1 || sizes.outputs > kOutputsMax) {
    return Refused(sizes.name, "{} outputs; from 1 to {}", sizes.outputs, kOutputsMax);
  }
  return {};
}

// A family lists the losses that its output fits.
Status CheckLoss(const ModelSizes& sizes, const ModelFamily& family) {
  std::vector<std::string_view> names;
  for (const LossKind* const loss : family.losses) names.push_back(loss->name);
  if (std::ranges::find(names, sizes.loss) != names.end()) return {};
  return Refused(sizes.name, "loss \"{}\"; {} takes {}", sizes.loss, family.name,
                 fmt::join(names, ", "));
}

}  // namespace

double ModelSizes::Number(std::string_view setting) const {
  const auto found = settings.find(std::string(setting));
  // A name that the family does not list is a mistake in the family's code.
  FOREBAY_CHECK(found != settings.end());
  return found->second;
}

std::int64_t ModelSizes::Whole(std::string_view setting) const {
  return static_cast<std::int64_t>(Number(setting));
}

std::string ModelSizes::Title() const {
  std::string title = fmt::format("{} {} to {}", name, ShapeText(), outputs);
  for (const ModelSetting& setting : family->settings) {
    // Dropout rates, for example, do not change the parameters: such models may exchange
    // checkpoints.
    if (!setting.shapes_parameters) continue;
    title += fmt::format(", {} {}", setting.name, Number(setting.name));
  }
  return title;
}

std::string ModelSizes::ShapeText() const { return fmt::format("{}", fmt::join(shape, "x")); }

Error RefusedModel(std::string_view model, std::string_view reason) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("model {}: {}", model, reason));
}

std::vector<std::string_view> ModelNames() {
  std::vector<std::string_view> names;
  for (const ModelFamily* const family : ModelFamilies()) {
    for (const ModelPreset& preset : family->presets) names.push_back(preset.name);
  }
  return names;
}

const LossKind& LossOf(const ModelSizes& sizes) {
  const auto losses = sizes.family->losses;
  const auto found = std::ranges::find(losses, sizes.loss, &LossKind::name);
  FOREBAY_CHECK(found != losses.end());
  return **found;
}

// Usual settings, then the preset's, then the request's; then all checks, from the general to the
// family's own.
Result<ModelSizes> ResolveModel(const ModelRequest& request) {
  const auto [family, preset] = FindPreset(request.name);
  if (preset == nullptr) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("there is no model \"{}\"; there are: {}", request.name,
                             fmt::join(ModelNames(), ", ")));
  }
  ModelSizes sizes;
  // Later values replace earlier ones: the family's, the preset's, the request's.
  sizes.family = family;
  sizes.name = request.name;
  sizes.shape = request.shape;
  if (sizes.shape.empty()) sizes.shape.assign(preset->shape, preset->shape + family->axes);
  sizes.outputs = request.outputs == 0 ? preset->outputs : request.outputs;
  sizes.loss = request.loss.empty() ? std::string(family->losses.front()->name) : request.loss;
  for (const ModelSetting& setting : family->settings) {
    sizes.settings[std::string(setting.name)] = setting.usual;
  }
  for (const ModelPreset::Setting& own : preset->settings) {
    if (!own.name.empty()) sizes.settings[std::string(own.name)] = own.value;
  }
  FOREBAY_TRY(ApplySettings(request, *family, sizes));
  FOREBAY_TRY(CheckShape(sizes, *family));
  FOREBAY_TRY(CheckLoss(sizes, *family));
  if (family->check != nullptr) FOREBAY_TRY(family->check(sizes));
  return sizes;
}

}  // namespace forebay::train
