// Augmentation: crops, mirrors and normalises a sample on its way into training. It runs as the
// client's transform hook, on threads beside the arithmetic.
//
// It is a pure function of the sample and of a seed that the client derives from (run's seed,
// epoch, sample id). So the result is the same under every layout and after a resume.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/tensor.h"
#include "trainer/core/config/train_config.h"

namespace forebay::train {

// Samples are {..., H, W}, or {..., D, H, W} if depth is cropped or mirrored; the dimensions before
// are channels. Thread-safe.
class Augmentation {
 public:
  enum class Use : std::uint8_t { kTraining, kEvaluation };

  static bool IsAskedFor(const AugmentationConfig& config);
  // The augmentation of the inputs of a data set, which `field` describes. Evaluations crop the
  // middle and mirror nothing. nullopt if the configuration asks for nothing. kInvalidArgument
  // names key, value and what is allowed for this field.
  static Result<std::optional<Augmentation>> OfInput(const AugmentationConfig& config,
                                                     const FieldSpec& field, Use use);
  // The augmentation of the targets. Targets that are volumes of the inputs' size are cut and
  // mirrored as their inputs, but not normalised. Other targets are left alone (nullopt). Errors as
  // above.
  static Result<std::optional<Augmentation>> OfTarget(const AugmentationConfig& config,
                                                      const FieldSpec& input,
                                                      const FieldSpec& target, Use use);

  Dtype dtype() const { return normalises() ? Dtype::kF32 : dtype_; }
  std::vector<std::uint64_t> shape() const;  // of a sample that comes out
  std::uint64_t input_bytes() const;
  std::uint64_t output_bytes() const;

  // `sample` has input_bytes(), `output` output_bytes().
  void Apply(std::span<const std::byte> sample, std::uint64_t seed,
             std::span<std::byte> output) const;

 private:
  // Depth, height, width; depth is 1 where samples have none.
  using Extent = std::array<std::int64_t, 3>;
  struct Cut {
    Extent first = {};  // in the sample; may be negative, and reach beyond it: zeros
    std::array<bool, 3> flips = {};
  };

  Augmentation() = default;
  Status Read(const AugmentationConfig& config, const FieldSpec& field);
  bool normalises() const { return !scales_.empty(); }
  Cut Draw(std::uint64_t seed) const;
  void CopyRow(std::span<const std::byte> row, const Cut& cut, std::byte* output) const;
  void Normalise(std::span<const std::byte> plane, std::size_t channel, float* output) const;

  Use use_ = Use::kTraining;
  Dtype dtype_ = Dtype::kU8;
  std::vector<std::uint64_t> leading_;  // dimensions before the spatial ones
  std::size_t axes_ = 2;                // spatial ones: 2 or 3
  std::int64_t channels_ = 1;
  Extent in_ = {1, 1, 1};
  Extent out_ = {1, 1, 1};
  Extent padding_ = {};
  std::array<bool, 3> may_flip_ = {};
  std::vector<float> scales_;   // by channel: value * scale + offset
  std::vector<float> offsets_;
};

}  // namespace forebay::train
