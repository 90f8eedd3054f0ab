// Learned predictors for tests, built without training: random and extreme weights, and a network
// that predicts the larger of two neighbours. Also encodes planes in which every block is
// corrected, which the encoder would not choose.
#include "compress/encode/testing/learned_samples.h"

#include <algorithm>
#include <random>

#include "compress/encode/wavefront/learned_choice.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

std::vector<PredictorLayer> Layers(const std::vector<std::uint32_t>& widths, bool extreme,
                                   std::mt19937& random) {
  std::vector<PredictorLayer> layers;
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(random()) % limit);
  };
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    PredictorLayer layer;
    layer.inputs = widths[i];
    layer.outputs = widths[i + 1];
    for (std::uint32_t k = 0; k < layer.inputs * layer.outputs; ++k) {
      const int weight = extreme ? (below(2) != 0 ? 127 : -128) : below(64) - 32;
      layer.weights.push_back(static_cast<std::int8_t>(weight));
    }
    for (std::uint32_t k = 0; k < layer.outputs; ++k) {
      const std::int32_t side = below(2) != 0 ? 1 : -1;
      layer.bias.push_back(extreme ? side * kPredictorBiasMax : below(4096) - 1024);
      layer.shift.push_back(static_cast<std::uint8_t>(
          extreme ? static_cast<std::uint32_t>(below(kPredictorShiftMax + 1)) : 5));
    }
    layers.push_back(layer);
  }
  return layers;
}

std::shared_ptr<const Predictor> BuildOrDie(const std::vector<std::uint32_t>& intra,
                                            const std::vector<std::uint32_t>& inter, bool extreme,
                                            std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<PredictorLayer> first = Layers(intra, extreme, random);
  std::vector<PredictorLayer> second = Layers(inter, extreme, random);
  auto built = Predictor::Build({std::move(first), std::move(second)});
  FOREBAY_CHECK(built.has_value());
  return *built;
}

}  // namespace

std::shared_ptr<const Predictor> RandomPredictor(std::uint32_t seed,
                                                 const std::vector<std::uint32_t>& intra,
                                                 const std::vector<std::uint32_t>& inter) {
  return BuildOrDie(intra, inter, false, seed);
}

std::shared_ptr<const Predictor> ExtremePredictor(std::uint32_t seed,
                                                  const std::vector<std::uint32_t>& inter) {
  return BuildOrDie({}, inter, true, seed);
}

std::vector<std::byte> MakeLargerOfTwo(std::uint32_t rows, std::uint32_t columns,
                                       std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> samples(std::size_t{rows} * columns);
  std::vector<int> above(columns, 250);
  for (std::uint32_t row = 0; row < rows; ++row) {
    int west = above[0];
    for (std::uint32_t column = 0; column < columns; ++column) {
      const int less = static_cast<int>(static_cast<std::uint32_t>(random()) % 9);
      west = above[column] = std::max(std::max(west, above[column]) - less, 0);
      samples[std::size_t{row} * columns + column] = static_cast<std::byte>(west);
    }
  }
  return samples;
}

std::shared_ptr<const Predictor> LargerOfTwoPredictor(bool inter) {
  // Inputs 0 and 2 are west and north less the filter's value: hidden are the positive parts of
  // west, of -west and of north - west.
  PredictorLayer hidden;
  hidden.inputs = 3;
  hidden.outputs = 3;
  hidden.weights = {1, 0, 0, -1, 0, 0, -1, 0, 1};
  hidden.bias.assign(3, 0);
  hidden.shift.assign(3, 0);
  PredictorLayer last;
  last.inputs = 3;
  last.outputs = 2;
  last.weights = {16, -16, 16, 0, 0, 0};
  last.bias = {-4 * 16, 20};
  last.shift = {0, 0};
  const std::vector layers = {hidden, last};
  auto built = Predictor::Build({layers, inter ? layers : std::vector<PredictorLayer>{}});
  FOREBAY_CHECK(built.has_value());
  return *built;
}

std::vector<std::byte> EncodeEveryBlockLearned(const PlaneShape& shape,
                                               std::span<const std::byte> samples,
                                               const Predictor& predictor) {
  WavefrontWork<std::uint8_t> work = ChooseWavefront<std::uint8_t>(shape, samples, {});
  CorrectBlocks(predictor, work, [](std::size_t block, std::uint64_t, std::uint64_t) {
    return block % 7 != 6;
  });
  ChooseMagnitudeShift(work);
  ByteWriter writer;
  writer.Le(std::to_integer<std::uint8_t>(kPlaneKindLearned));
  writer.Le(predictor.short_id());
  writer.Bytes(WriteWavefrontBody(work));
  return writer.Release();
}

}  // namespace forebay::compress
