// A learned predictor as encoder and decoder hold it: two small networks of integer weights that
// correct the wavefront codec's filters (docs/pack_planes.md, "Learned").
//
// Sums cannot overflow: an input has at most 8 bits, a weight 8, a layer 64 inputs, and a bias is
// within 2^24. So every order of additions gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/pack/sha256.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"

namespace forebay::compress {

inline constexpr std::uint64_t kPredictorMagic = 0x3154'454E'5942'4546;  // "FEBYNET1"
inline constexpr std::size_t kPredictorLayersMax = 4;
inline constexpr std::uint32_t kPredictorWidthMax = 64;  // inputs, and outputs, of a layer
inline constexpr std::uint32_t kPredictorOutputs = 2;    // of the last layer: correction, energy
inline constexpr std::int32_t kPredictorBiasMax = 1 << 24;
inline constexpr std::uint32_t kPredictorShiftMax = 24;
// Corrections are in sixteenths of a sample's step.
inline constexpr int kCorrectionBits = 4;
inline constexpr std::int32_t kCorrectionMax = 127 << kCorrectionBits;

// Inputs, of which a network takes the first ones: neighbours in the current frame (kCurrentTaps),
// errors, their sizes; in inter frames also displaced neighbours and errors of the frames before.
inline constexpr std::size_t kErrorTapCount = 6;  // the first of kCurrentTaps
inline constexpr std::uint32_t kIntraInputs = 21;
inline constexpr std::uint32_t kInterInputs = 35;

// One layer: output o is clamp((bias[o] + sum of weight * input + half) >> shift[o], ...).
struct PredictorLayer {
  std::uint32_t inputs = 0, outputs = 0;
  std::vector<std::int8_t> weights;  // [outputs][stride()], zeros beyond the inputs
  std::vector<std::int32_t> bias;
  std::vector<std::uint8_t> shift;

  std::size_t stride() const { return (inputs + 3) / 4 * 4; }
};

struct PredictorNet {
  std::vector<PredictorLayer> layers;  // empty: frames of this kind are not corrected
  // The first layer's bias for inputs that are 128 larger.
  std::vector<std::int32_t> shifted_bias;

  bool present() const { return !layers.empty(); }
  std::uint32_t macs() const;  // multiplications per pixel
};

// What a reader is willing to spend.
struct PredictorBudget {
  std::size_t bytes_max = limits::kPredictorBytesMax;
  std::uint32_t macs_max = limits::kPredictorMacsMax;
};

// An immutable, checked predictor.
class Predictor {
 public:
  // Reads the record of a predictor. Errors: kInvalidArgument (no predictor), kUnimplemented (a
  // newer version), kResourceExhausted (beyond the budget; names both), kDataLoss (anything else:
  // sizes that do not add up, a bias or shift out of range).
  static Result<std::shared_ptr<const Predictor>> Parse(std::span<const std::byte> bytes,
                                                        const PredictorBudget& budget = {});

  // From layers as a trainer has them: weights in [outputs][inputs] order without padding.
  // Errors: kInvalidArgument for anything that Parse would refuse.
  static Result<std::shared_ptr<const Predictor>> Build(
      const std::array<std::vector<PredictorLayer>, 2>& nets);

  const PredictorNet& net(bool inter) const { return nets_[inter ? 1 : 0]; }
  std::span<const std::byte> bytes() const { return bytes_; }
  const Sha256Digest& id() const { return id_; }
  // The first eight bytes of the id, as bodies name it.
  std::uint64_t short_id() const;
  std::uint32_t macs() const;

 private:
  std::array<PredictorNet, 2> nets_;  // intra, inter
  std::vector<std::byte> bytes_;
  Sha256Digest id_{};
};

// The predictors that a reader has, looked up by what a body names. Borrowed; may be empty.
using PredictorList = std::span<const std::shared_ptr<const Predictor>>;
const Predictor* FindPredictor(PredictorList predictors, std::uint64_t short_id);

}  // namespace forebay::compress
