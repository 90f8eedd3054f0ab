#include "compress/encode/learned_samples.h"

#include <random>

#include "compress/encode/learned_choice.h"
#include "compress/format/plane_kinds.h"
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

std::vector<std::byte> EncodeEveryBlockLearned(const PlaneShape& shape,
                                               std::span<const std::byte> samples,
                                               const Predictor& predictor) {
  WaveWork<std::uint8_t> work = ChooseWave<std::uint8_t>(shape, samples, {});
  CorrectBlocks(predictor, work, [](std::size_t block, std::uint64_t, std::uint64_t) {
    return block % 7 != 6;
  });
  ChooseMagnitudeShift(work);
  ByteWriter writer;
  writer.Le(std::to_integer<std::uint8_t>(kPlaneKindLearned));
  writer.Le(predictor.short_id());
  writer.Bytes(WriteWaveBody(work));
  return writer.Release();
}

}  // namespace forebay::compress
