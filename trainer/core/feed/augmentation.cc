// Crop, flip and normalisation of one sample, from its bytes to an output buffer. Random draws come
// from the sample's seed alone, which the client derives from the position in the order. So a
// sample is augmented alike whichever rank, thread or layout has it.
#include "trainer/core/feed/augmentation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/mix64.h"
#include "trainer/core/config/number_list.h"

namespace forebay::train {
namespace {

constexpr std::size_t kAxes = 3;
constexpr std::string_view kAxisNames = "dhw";

// A key of the section [augmentation] has a value that is not allowed; says what is.
Error BadKey(std::string_view key, std::string_view value, const std::string& allowed) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("augmentation.{} = \"{}\": {}", key, value, allowed));
}

// In [0, choices): by the upper half of a product (Lemire, 2019), whose bias of choices / 2^32 no
// training sees.
std::int64_t Choose(std::uint64_t& state, std::int64_t choices) {
  // The lower half goes unused: both factors then have at most 32 bits, and the product fits.
  const std::uint64_t upper = NextWord64(state) >> 32;
  return static_cast<std::int64_t>((upper * static_cast<std::uint64_t>(choices)) >> 32);
}

// An element of a sample lies at any address, so that it is copied and not cast.
template <typename T>
float Element(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return static_cast<float>(value);
}

// Called for types that IsNumber accepts.
float ElementOf(Dtype dtype, const std::byte* bytes) {
  switch (dtype) {
    case Dtype::kU8: return Element<std::uint8_t>(bytes);
    case Dtype::kI8: return Element<std::int8_t>(bytes);
    case Dtype::kU16: return Element<std::uint16_t>(bytes);
    case Dtype::kI16: return Element<std::int16_t>(bytes);
    case Dtype::kI32: return Element<std::int32_t>(bytes);
    default: return Element<float>(bytes);
  }
}

// Types that can be normalised, which makes them floats.
bool IsNumber(Dtype dtype) {
  constexpr Dtype kNumbers[] = {Dtype::kU8,  Dtype::kI8,  Dtype::kU16,
                                Dtype::kI16, Dtype::kI32, Dtype::kF32};
  return std::ranges::find(kNumbers, dtype) != std::end(kNumbers);
}

// One factor and one addend for each channel.
struct Normalisation {
  std::vector<float> scales;
  std::vector<float> offsets;
};

// (x / scale - mean) / stddev as one product and one sum; bytes are scaled to [0, 1].
Result<Normalisation> ReadNormalisation(const AugmentationConfig& config, const FieldSpec& field,
                                        std::int64_t channels) {
  // Texts and not lists of numbers, because one for each channel is needed, which the table cannot
  // check.
  const auto means = ParseNumbers<double>(config.channel_means, ',');
  const auto stddevs = ParseNumbers<double>(config.channel_stddevs, ',');
  const auto wanted = static_cast<std::size_t>(channels);
  const std::string allowed =
      fmt::format("must be {} numbers, one for each channel of field {}, such as 0.485,0.456",
                  channels, field.name);
  if (!means || means->size() != wanted) {
    return BadKey("channel_means", config.channel_means, allowed);
  }
  if (!stddevs || stddevs->size() != wanted ||
      !std::ranges::all_of(*stddevs, [](double value) { return value > 0; })) {
    return BadKey("channel_stddevs", config.channel_stddevs, allowed + ", above 0");
  }
  if (!IsNumber(field.dtype)) {
    return BadKey("channel_means", config.channel_means,
                  fmt::format("field {} is of {}", field.name, DtypeName(field.dtype)));
  }
  // As in PyTorch's ToTensor.
  const double scale = field.dtype == Dtype::kU8 ? 255.0 : 1.0;
  Normalisation normalisation;
  for (std::size_t at = 0; at < wanted; ++at) {
    // Computed in double and rounded once, so that scale and deviation do not round one after the
    // other.
    normalisation.scales.push_back(static_cast<float>(1.0 / (scale * (*stddevs)[at])));
    normalisation.offsets.push_back(static_cast<float>(-(*means)[at] / (*stddevs)[at]));
  }
  return normalisation;
}

}  // namespace

bool Augmentation::IsAskedFor(const AugmentationConfig& config) {
  return !config.crop.empty() || config.padding != 0 || !config.flip.empty() ||
         !config.channel_means.empty() || !config.channel_stddevs.empty();
}

// Reads and checks everything that inputs and targets have in common.
Status Augmentation::Read(const AugmentationConfig& config, const FieldSpec& field) {
  const auto crop = ParseNumbers<std::int64_t>(config.crop, 'x');
  if (!crop || (!config.crop.empty() && crop->size() != 2 && crop->size() != kAxes)) {
    return BadKey("crop", config.crop, "must be HxW or DxHxW, such as 24x24");
  }
  // Two axes unless depth is named, so that colours of an image are never taken for depth.
  const bool has_depth = crop->size() == kAxes || config.flip.find('d') != std::string::npos;
  axes_ = has_depth ? kAxes : 2;
  if (crop->size() == 2 && has_depth) {
    return BadKey("crop", config.crop, "must be DxHxW where augmentation.flip has d");
  }
  if (field.shape.size() < axes_ || field.big_endian) {
    return BadKey("crop", config.crop,
                  fmt::format("field {} has {} dimensions{}; {} or more are cropped and flipped",
                              field.name, field.shape.size(),
                              field.big_endian ? ", big-endian" : "", axes_));
  }
  dtype_ = field.dtype;
  // Everything in front of the spatial axes counts as channels.
  leading_.assign(field.shape.begin(), field.shape.end() - static_cast<std::ptrdiff_t>(axes_));
  channels_ = static_cast<std::int64_t>(std::accumulate(
      leading_.begin(), leading_.end(), std::uint64_t{1}, std::multiplies<>()));
  for (std::size_t at = 0; at < axes_; ++at) {
    const std::size_t axis = kAxes - axes_ + at;
    in_[axis] = static_cast<std::int64_t>(field.shape[leading_.size() + at]);
    out_[axis] = crop->empty() ? in_[axis] : (*crop)[at];
    padding_[axis] = config.padding;
    // A window that is larger than the padded input would have no place to lie at.
    if (out_[axis] < 1 || out_[axis] > in_[axis] + 2 * config.padding) {
      return BadKey("crop", config.crop,
                    fmt::format("field {} has {} along {} with {} of padding on both sides",
                                field.name, in_[axis], kAxisNames[axis], config.padding));
    }
  }
  for (const char name : config.flip) {
    const std::size_t axis = kAxisNames.find(name);
    if (axis == std::string_view::npos || may_flip_[axis]) {
      return BadKey("flip", config.flip, "must be axes, each once: w, hw or dhw, say");
    }
    may_flip_[axis] = true;
  }
  return {};
}

Result<std::optional<Augmentation>> Augmentation::OfInput(const AugmentationConfig& config,
                                                          const FieldSpec& field, Use use) {
  if (!IsAskedFor(config)) return std::optional<Augmentation>();
  Augmentation augmentation;
  augmentation.use_ = use;
  FOREBAY_TRY(augmentation.Read(config, field));
  if (!config.channel_means.empty() || !config.channel_stddevs.empty()) {
    FOREBAY_ASSIGN(Normalisation normalisation,
                   ReadNormalisation(config, field, augmentation.channels_));
    augmentation.scales_ = std::move(normalisation.scales);
    augmentation.offsets_ = std::move(normalisation.offsets);
  }
  return std::optional(std::move(augmentation));
}

// Targets that are volumes of the inputs' size, such as masks, are cut and mirrored with them.
// Only inputs are normalised.
Result<std::optional<Augmentation>> Augmentation::OfTarget(const AugmentationConfig& config,
                                                           const FieldSpec& input,
                                                           const FieldSpec& target, Use use) {
  if (!IsAskedFor(config)) return std::optional<Augmentation>();
  Augmentation of_input;
  // Read for its checks and its number of axes, which decide what "the same size" means.
  FOREBAY_TRY(of_input.Read(config, input));
  Augmentation augmentation;
  augmentation.use_ = use;
  // A target of another spatial size, such as a class, is not augmented.
  if (target.shape.size() < of_input.axes_ ||
      !std::equal(target.shape.end() - static_cast<std::ptrdiff_t>(of_input.axes_),
                  target.shape.end(),
                  input.shape.end() - static_cast<std::ptrdiff_t>(of_input.axes_))) {
    return std::optional<Augmentation>();
  }
  FOREBAY_TRY(augmentation.Read(config, target));
  return std::optional(std::move(augmentation));
}

std::vector<std::uint64_t> Augmentation::shape() const {
  std::vector<std::uint64_t> shape = leading_;
  for (std::size_t axis = kAxes - axes_; axis < kAxes; ++axis) {
    shape.push_back(static_cast<std::uint64_t>(out_[axis]));
  }
  return shape;
}

std::uint64_t Augmentation::input_bytes() const {
  return static_cast<std::uint64_t>(channels_ * in_[0] * in_[1] * in_[2]) * DtypeBytes(dtype_);
}

std::uint64_t Augmentation::output_bytes() const {
  return static_cast<std::uint64_t>(channels_ * out_[0] * out_[1] * out_[2]) *
         DtypeBytes(dtype());
}

// Draws are of the spatial axes alone, so that inputs and targets are cut alike.
Augmentation::Cut Augmentation::Draw(std::uint64_t seed) const {
  Cut cut;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    // Never negative, as Read has checked.
    const std::int64_t room = in_[axis] + 2 * padding_[axis] - out_[axis];
    // Evaluations are cut from the middle and draw nothing.
    if (use_ == Use::kEvaluation) {
      cut.first[axis] = room / 2 - padding_[axis];
      continue;
    }
    // Every axis draws, also one that has nothing to choose: the draws of the others then do not
    // depend on the sizes.
    cut.first[axis] = Choose(seed, room + 1) - padding_[axis];
    cut.flips[axis] = Choose(seed, 2) == 1 && may_flip_[axis];
  }
  return cut;
}

// One row of `out_[2]` elements from one of `in_[2]`; zeros beyond its ends.
void Augmentation::CopyRow(std::span<const std::byte> row, const Cut& cut,
                           std::byte* output) const {
  const std::size_t size = DtypeBytes(dtype_);
  const std::int64_t begin = std::max<std::int64_t>(cut.first[2], 0);
  const std::int64_t end = std::min(cut.first[2] + out_[2], in_[2]);
  // Padding is zeros; the part of the row that exists is copied over them.
  std::memset(output, 0, static_cast<std::size_t>(out_[2]) * size);
  if (begin >= end) return;
  if (!cut.flips[2]) {
    std::memcpy(output + static_cast<std::size_t>(begin - cut.first[2]) * size,
                row.data() + static_cast<std::size_t>(begin) * size,
                static_cast<std::size_t>(end - begin) * size);
    return;
  }
  for (std::int64_t at = begin; at < end; ++at) {
    // The window is mirrored as a whole, padding included.
    const std::int64_t to = out_[2] - 1 - (at - cut.first[2]);
    std::memcpy(output + static_cast<std::size_t>(to) * size,
                row.data() + static_cast<std::size_t>(at) * size, size);
  }
}

// Converts a channel to floats. Padding is normalised as well: its zeros are values of the input.
void Augmentation::Normalise(std::span<const std::byte> plane, std::size_t channel,
                             float* output) const {
  const std::size_t size = DtypeBytes(dtype_);
  for (std::size_t at = 0; at < plane.size() / size; ++at) {
    output[at] =
        ElementOf(dtype_, plane.data() + at * size) * scales_[channel] + offsets_[channel];
  }
}

// Channel by channel and row by row. Without normalisation rows are copied straight to the output.
void Augmentation::Apply(std::span<const std::byte> sample, std::uint64_t seed,
                         std::span<std::byte> output) const {
  FOREBAY_CHECK(sample.size() == input_bytes() && output.size() == output_bytes());
  const Cut cut = Draw(seed);
  const std::size_t size = DtypeBytes(dtype_);
  const auto in_row = static_cast<std::size_t>(in_[2]) * size;
  const auto out_row = static_cast<std::size_t>(out_[2]) * size;
  const auto out_rows = static_cast<std::size_t>(out_[0] * out_[1]);
  std::vector<std::byte> cropped;  // of a channel, where it is not `output` itself
  if (normalises()) cropped.resize(out_rows * out_row);
  for (std::int64_t channel = 0; channel < channels_; ++channel) {
    const auto index = static_cast<std::size_t>(channel);
    std::byte* to = normalises() ? cropped.data() : output.data() + index * out_rows * out_row;
    for (std::int64_t at = 0; at < out_[0] * out_[1]; ++at, to += out_row) {
      // A flip reads the rows in reverse order, so that depth and height cost nothing.
      const std::int64_t depth = at / out_[1];
      const std::int64_t height = at % out_[1];
      const std::int64_t d = cut.first[0] + (cut.flips[0] ? out_[0] - 1 - depth : depth);
      const std::int64_t h = cut.first[1] + (cut.flips[1] ? out_[1] - 1 - height : height);
      if (d < 0 || d >= in_[0] || h < 0 || h >= in_[1]) {
        std::memset(to, 0, out_row);
        continue;
      }
      const auto row = static_cast<std::size_t>((channel * in_[0] + d) * in_[1] + h);
      CopyRow(sample.subspan(row * in_row, in_row), cut, to);
    }
    if (!normalises()) continue;
    std::vector<float> floats(cropped.size() / size);
    Normalise(cropped, index, floats.data());
    std::memcpy(output.data() + index * floats.size() * sizeof(float), floats.data(),
                floats.size() * sizeof(float));
  }
}

}  // namespace forebay::train
