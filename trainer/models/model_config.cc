// Section [model] of a configuration and the shape of the data set's samples become a model
// request. The subtle part is the order of axes: networks take channels first, data sets often
// store them last, and `auto` guesses from the sizes.
#include "trainer/models/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "trainer/core/config/number_list.h"

namespace forebay::train {
namespace {

using Shape = std::vector<std::int64_t>;

// An axis of at most so many may be that of channels: grey, colours, opacity, CosmoFlow's shifts.
constexpr std::int64_t kChannelsMax = 4;

// A key of the section [model] has a value that is not allowed; says what is.
template <typename... Arguments>
Error BadKey(std::string_view key, std::string_view value,
             fmt::format_string<Arguments...> allowed, Arguments&&... arguments) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("model.{} = \"{}\": {}", key, value,
                           fmt::format(allowed, std::forward<Arguments>(arguments)...)));
}

// Which settings there are, and their bounds, is for ResolveModel to say.
Result<std::map<std::string, double>> ParseSettings(const std::string& text) {
  std::map<std::string, double> settings;
  for (const std::string_view word : SplitText(text, ',')) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name(word.substr(0, equals));
    const auto value = ParseNumber<double>(word.substr(std::min(equals + 1, word.size())));
    if (name.empty() || !value) {
      return BadKey("settings", text, "must be name=number,..., such as patch=4,depth=6");
    }
    if (!settings.emplace(name, *value).second) {
      return BadKey("settings", text, "{} is there twice", name);
    }
  }
  return settings;
}

Result<Shape> ParseShape(const std::string& text) {
  std::optional<Shape> shape = ParseNumbers<std::int64_t>(text, 'x');
  if (shape) return *std::move(shape);
  return BadKey("shape", text, "must be extents with x between them, such as 3x224x224");
}

std::int64_t ElementsOf(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Samples as they are stored, for a model of `axes` axes, channels first.
struct StoredShape {
  Shape shape;
  bool channels_last = false;
};

// Reads the stored shape as one of the model's, with channels first.
Result<StoredShape> TakeStored(const TrainConfig& config, const SampleFacts& facts,
                               std::size_t axes) {
  StoredShape stored;
  for (const std::uint64_t extent : facts.input_shape) {
    stored.shape.push_back(static_cast<std::int64_t>(extent));
  }
  Shape& shape = stored.shape;
  // Grey images have no axis of channels.
  if (shape.size() + 1 == axes) shape.insert(shape.begin(), 1);
  if (shape.size() != axes) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("model.architecture = \"{}\": it takes samples of {} axes, the field "
                             "{} of data set {} has {} ({}); model.shape says how to read them",
                             config.model.architecture, axes, config.data.input_field,
                             config.data.train_dataset, facts.input_shape.size(),
                             fmt::join(facts.input_shape, "x")));
  }
  const std::string& axis = config.model.channel_axis;
  // A guess, which model.channel_axis overrides.
  const bool looks_last = shape.back() <= kChannelsMax && shape.front() > kChannelsMax;
  stored.channels_last = axis == "last" || (axis == "auto" && looks_last);
  if (stored.channels_last && facts.input_shape.size() == axes) {
    shape.insert(shape.begin(), shape.back());
    shape.pop_back();
  }
  return stored;
}

// The shape that the model gets and whether channels are stored last.
Result<StoredShape> ChooseShape(const TrainConfig& config, const SampleFacts& facts,
                                std::size_t axes) {
  FOREBAY_ASSIGN(Shape wanted, ParseShape(config.model.shape));
  const bool says_last = config.model.channel_axis == "last";
  if (facts.input_shape.empty()) {
    return StoredShape{.shape = std::move(wanted), .channels_last = says_last};
  }
  if (wanted.empty()) return TakeStored(config, facts, axes);
  std::int64_t stored = 1;
  for (const std::uint64_t extent : facts.input_shape) {
    stored *= static_cast<std::int64_t>(extent);
  }
  if (ElementsOf(wanted) != stored) {
    return BadKey("shape", config.model.shape, "{} elements; a sample of {} has {} ({})",
                  ElementsOf(wanted), config.data.train_dataset, stored,
                  fmt::join(facts.input_shape, "x"));
  }
  // A shape that equals what would be read without the key does not change how samples are read.
  // An error means only that the shape could not be read without the key, which is why it was
  // given.
  const Result<StoredShape> own = TakeStored(config, facts, axes);
  const bool same = own.has_value() && own->shape == wanted;
  return StoredShape{.shape = std::move(wanted),
                     .channels_last = same ? own->channels_last : says_last};
}

// Known only when the shape is: configurations cannot check it.
Status CheckChannels(const char* key, const std::vector<double>& values, std::int64_t channels) {
  if (values.size() == 1 || static_cast<std::int64_t>(values.size()) == channels) return {};
  return BadKey(key, fmt::format("{}", fmt::join(values, ",")),
                "must be one number, or one for each of {} channels", channels);
}

// A line of --list-models.
std::string SettingText(const ModelSetting& setting) {
  return fmt::format("    {:<18} {:>6}  {} to {}: {}\n", setting.name, setting.usual,
                     setting.minimum, setting.maximum, setting.help);
}

}  // namespace

Result<ConfiguredModel> ConfigureModel(const TrainConfig& config, const SampleFacts& facts) {
  const ModelConfig& model = config.model;
  ConfiguredModel configured;
  ModelRequest& request = configured.request;
  request.name = model.architecture;
  // The preset alone, to learn how many axes the family takes.
  const Result<ModelSizes> own = ResolveModel(request);
  if (!own.has_value()) return own.error().WithContext("model.architecture");
  FOREBAY_ASSIGN(request.settings, ParseSettings(model.settings));
  // A setting of the same name in model.settings comes first, because emplace keeps what is there.
  if (config.train.label_smoothing > 0) {
    request.settings.emplace("label_smoothing", config.train.label_smoothing);
  }
  FOREBAY_ASSIGN(StoredShape shape, ChooseShape(config, facts, own->shape.size()));
  request.shape = std::move(shape.shape);
  configured.channels_last = shape.channels_last;
  // 0 leaves the choice to the preset.
  request.outputs = model.classes > 0 ? model.classes : static_cast<std::int64_t>(facts.classes);
  request.loss = model.loss;
  // Whether any weight has such a name is known when the weights are read.
  for (const std::string_view prefix : SplitText(model.fresh, ',')) {
    configured.fresh.emplace_back(prefix);
  }
  if (!configured.fresh.empty() && model.weights.empty()) {
    return BadKey("fresh", model.fresh, "means something with model.weights only");
  }
  FOREBAY_ASSIGN(const ModelSizes sizes, ResolveModel(request));
  FOREBAY_TRY(CheckChannels("input_mean", model.input_mean, sizes.shape[0]));
  FOREBAY_TRY(CheckChannels("input_stddev", model.input_stddev, sizes.shape[0]));
  return configured;
}

// ConfigureModel has resolved the same request, so there is no error here.
std::string ConfiguredModel::Text() const {
  const ModelSizes sizes = ResolveModel(request).value();
  return fmt::format("{}; loss {}{}", sizes.Title(), sizes.loss,
                     channels_last ? "; channels come last in the data set" : "");
}

// Everything here comes from the families' descriptors: a new family needs no change.
std::string ModelList() {
  std::string text;
  for (const ModelFamily* const family : ModelFamilies()) {
    std::vector<std::string_view> losses;
    for (const LossKind* const loss : family->losses) losses.push_back(loss->name);
    text += fmt::format("{}{}, loss {}\n  settings: usual number, bounds\n",
                        text.empty() ? "" : "\n", family->name, fmt::join(losses, ", "));
    for (const ModelSetting& setting : family->settings) text += SettingText(setting);
    text += "  names: own sample and outputs, settings of its own\n";
    for (const ModelPreset& preset : family->presets) {
      text += fmt::format("    {:<24} {} to {}", preset.name,
                          fmt::join(preset.shape, preset.shape + family->axes, "x"),
                          preset.outputs);
      for (const ModelPreset::Setting& own : preset.settings) {
        if (!own.name.empty()) text += fmt::format(", {}={}", own.name, own.value);
      }
      text += '\n';
    }
  }
  return text;
}

}  // namespace forebay::train
