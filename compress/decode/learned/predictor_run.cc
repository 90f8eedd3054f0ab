// Runs the network of a learned predictor on 64 pixels: the scalar reference, and the choice of a
// kernel. Layers are sums of 8-bit products in 32 bits, which cannot overflow (predictor.h),
// shifted with rounding. Called by the wavefront decoder for each step and by the encoder for each
// row.
#include "compress/decode/learned/predictor_run.h"

#include <algorithm>

#include "compress/decode/isa.h"

namespace forebay::compress {
namespace {

using PixelInputs = std::array<std::uint8_t, kPredictorWidthMax>;

// One output of a layer for one pixel, shifted and rounded. The first layer's inputs are 128 larger
// than they should be, so that they are unsigned; `bias` makes up for that (shifted_bias).
std::int32_t LayerSum(const PredictorLayer& layer, std::int32_t bias, std::uint32_t output,
                      const PixelInputs& inputs) {
  const std::int8_t* const weights = layer.weights.data() + output * layer.stride();
  std::int32_t sum = bias;
  for (std::uint32_t i = 0; i < layer.inputs; ++i) {
    // Every order of additions gives the same bits, so kernels may add in another order.
    sum += std::int32_t{weights[i]} * inputs[i];
  }
  const std::uint32_t shift = layer.shift[output];
  return (sum + (1 << shift >> 1)) >> shift;
}

void RunPixel(const PredictorNet& net, std::size_t pixel, PredictorBatch& batch) {
  PixelInputs inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = batch.inputs[i][pixel];
  for (std::size_t i = 0; i + 1 < net.layers.size(); ++i) {
    const PredictorLayer& layer = net.layers[i];
    const std::int32_t* const bias = i == 0 ? net.shifted_bias.data() : layer.bias.data();
    PixelInputs hidden{};
    for (std::uint32_t o = 0; o < layer.outputs; ++o) {
      hidden[o] = static_cast<std::uint8_t>(
          std::clamp(LayerSum(layer, bias[o], o, inputs), 0, 255));
    }
    // Inputs beyond a layer's are zero, and no layer reads more inputs than the one before has
    // outputs.
    inputs = hidden;
  }
  const PredictorLayer& last = net.layers.back();
  const std::int32_t* const bias =
      net.layers.size() == 1 ? net.shifted_bias.data() : last.bias.data();
  const std::int32_t correction = std::clamp(LayerSum(last, bias[0], 0, inputs),
                                             -kCorrectionMax, kCorrectionMax);
  batch.corrections[pixel] = static_cast<std::uint8_t>(
      (correction + (1 << (kCorrectionBits - 1))) >> kCorrectionBits & 0xFF);
  batch.mirrored[pixel] = (correction >> (kCorrectionBits - 1) & 1) != 0 ? 255 : 0;
  batch.energies[pixel] = static_cast<std::uint8_t>(
      std::clamp(LayerSum(last, bias[1], 1, inputs), 0, 255));
}

void RunScalar(const PredictorNet& net, PredictorBatch& batch) {
  RunPredictorScalar(net, batch, kWavefrontLanes);
}

}  // namespace

void RunPredictorScalar(const PredictorNet& net, PredictorBatch& batch, std::size_t count) {
  for (std::size_t pixel = 0; pixel < count; ++pixel) RunPixel(net, pixel, batch);
}

PredictorRun PredictorRunOf(Isa isa) {
#ifdef FOREBAY_X86_KERNELS
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vnni")) {
    return RunPredictorAvx512;
  }
  if (isa != Isa::kScalar) return RunPredictorAvx2;
#endif
  static_cast<void>(isa);
  return RunScalar;
}

}  // namespace forebay::compress
