// Fuzz target: a learned predictor's record. Whatever parses is within the budget and is written
// again as the same bytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "compress/format/plane/predictor.h"

namespace forebay::compress {
namespace {

// A parsed network as a trainer would have it: without padding.
std::vector<PredictorLayer> Unpadded(const PredictorNet& net) {
  std::vector<PredictorLayer> layers = net.layers;
  for (PredictorLayer& layer : layers) {
    std::vector<std::int8_t> weights;
    for (std::uint32_t o = 0; o < layer.outputs; ++o) {
      const auto row =
          layer.weights.begin() + static_cast<std::ptrdiff_t>(o * layer.stride());
      weights.insert(weights.end(), row, row + static_cast<std::ptrdiff_t>(layer.inputs));
    }
    layer.weights = std::move(weights);
  }
  return layers;
}

void Check(std::span<const std::byte> bytes) {
  const auto parsed = Predictor::Parse(bytes);
  if (!parsed.has_value()) return;
  const Predictor& predictor = **parsed;
  if (predictor.macs() > limits::kPredictorMacsMax) __builtin_trap();
  const auto built = Predictor::Build({Unpadded(predictor.net(false)),
                                       Unpadded(predictor.net(true))});
  if (!built.has_value() || !std::ranges::equal((*built)->bytes(), bytes)) __builtin_trap();
}

}  // namespace
}  // namespace forebay::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  forebay::compress::Check({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
