// The AVX-512 kernel of learned predictors, with VNNI: 64 pixels in a register of bytes. One
// instruction multiplies four inputs of 16 pixels by four weights and adds the products. Unpacking
// and packing work within 128 bits, and each undoes the other's reordering.
#include <immintrin.h>

#include <array>
#include <cstring>

#include "compress/decode/learned/predictor_run.h"

namespace forebay::compress {
namespace {

// Four inputs: register k has pixels 4k to 4k + 3 of each 16, with the four inputs of a pixel side
// by side.
struct Quads {
  std::array<__m512i, 4> pixels;
};

using QuadRows = std::array<Quads, kPredictorWidthMax / 4>;

Quads Interleave(const PredictorRow* rows) {
  const __m512i a = _mm512_load_si512(rows[0].data());
  const __m512i b = _mm512_load_si512(rows[1].data());
  const __m512i c = _mm512_load_si512(rows[2].data());
  const __m512i d = _mm512_load_si512(rows[3].data());
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b);
  const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d);
  const __m512i cd_high = _mm512_unpackhi_epi8(c, d);
  return {{_mm512_unpacklo_epi16(ab_low, cd_low), _mm512_unpackhi_epi16(ab_low, cd_low),
           _mm512_unpacklo_epi16(ab_high, cd_high), _mm512_unpackhi_epi16(ab_high, cd_high)}};
}

// One output of a layer for all 64 pixels, shifted and rounded, in 32 bits.
[[gnu::always_inline]] inline Quads LayerSums(const PredictorLayer& layer, std::int32_t bias,
                                              std::uint32_t output, const QuadRows& inputs) {
  const std::int8_t* const weights = layer.weights.data() + output * layer.stride();
  const std::uint32_t shift = layer.shift[output];
  const __m512i start = _mm512_set1_epi32(bias + (1 << shift >> 1));
  __m512i sum0 = start, sum1 = start, sum2 = start, sum3 = start;
  for (std::size_t i = 0; i < layer.stride(); i += 4) {
    int four = 0;
    // Rows of weights are padded with zeros to a multiple of four, so all of them exist.
    std::memcpy(&four, weights + i, sizeof(four));
    const __m512i weight = _mm512_set1_epi32(four);
    const Quads& input = inputs[i / 4];
    // Unsigned inputs times signed weights, added in 32 bits without saturation, in four chains
    // that do not wait for each other.
    sum0 = _mm512_dpbusd_epi32(sum0, input.pixels[0], weight);
    sum1 = _mm512_dpbusd_epi32(sum1, input.pixels[1], weight);
    sum2 = _mm512_dpbusd_epi32(sum2, input.pixels[2], weight);
    sum3 = _mm512_dpbusd_epi32(sum3, input.pixels[3], weight);
  }
  const __m128i count = _mm_cvtsi32_si128(static_cast<int>(shift));
  return {{_mm512_sra_epi32(sum0, count), _mm512_sra_epi32(sum1, count),
           _mm512_sra_epi32(sum2, count), _mm512_sra_epi32(sum3, count)}};
}

// Clamps to 0 .. 255 and restores the order of the pixels.
[[gnu::always_inline]] inline __m512i PackBytes(const Quads& sums) {
  return _mm512_packus_epi16(_mm512_packs_epi32(sums.pixels[0], sums.pixels[1]),
                             _mm512_packs_epi32(sums.pixels[2], sums.pixels[3]));
}

// Clamps corrections, rounds them to whole steps, and notes the pixels whose correction was rounded
// up: their residuals are negated (docs/pack_planes.md, "Learned").
void StoreCorrections(const Quads& sums, PredictorBatch& batch) {
  const __m512i most = _mm512_set1_epi16(kCorrectionMax);
  const __m512i least = _mm512_set1_epi16(-kCorrectionMax);
  const __m512i half = _mm512_set1_epi16(1 << (kCorrectionBits - 1));
  const auto clamp = [&](__m512i first, __m512i second) {
    return _mm512_min_epi16(_mm512_max_epi16(_mm512_packs_epi32(first, second), least), most);
  };
  const __m512i low = clamp(sums.pixels[0], sums.pixels[1]);
  const __m512i high = clamp(sums.pixels[2], sums.pixels[3]);
  const auto round = [&](__m512i a) {
    return _mm512_srai_epi16(_mm512_add_epi16(a, half), kCorrectionBits);
  };
  _mm512_store_si512(batch.corrections.data(), _mm512_packs_epi16(round(low), round(high)));
  const __m512i halves =
      _mm512_packus_epi16(_mm512_and_si512(low, half), _mm512_and_si512(high, half));
  _mm512_store_si512(batch.mirrored.data(),
                     _mm512_movm_epi8(_mm512_test_epi8_mask(halves, halves)));
}

}  // namespace

void RunPredictorAvx512(const PredictorNet& net, PredictorBatch& batch) {
  alignas(64) std::array<std::array<PredictorRow, kPredictorWidthMax>, 2> hidden;
  QuadRows quads;
  const PredictorRow* inputs = batch.inputs.data();
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    const PredictorLayer& layer = net.layers[l];
    for (std::size_t i = 0; i < layer.stride(); i += 4) quads[i / 4] = Interleave(inputs + i);
    const std::int32_t* const bias = l == 0 ? net.shifted_bias.data() : layer.bias.data();
    if (l + 1 == net.layers.size()) {
      StoreCorrections(LayerSums(layer, bias[0], 0, quads), batch);
      _mm512_store_si512(batch.energies.data(), PackBytes(LayerSums(layer, bias[1], 1, quads)));
      return;
    }
    for (std::uint32_t o = 0; o < layer.outputs; ++o) {
      _mm512_storeu_si512(hidden[l % 2][o].data(),
                          PackBytes(LayerSums(layer, bias[o], o, quads)));
    }
    inputs = hidden[l % 2].data();
  }
}

}  // namespace forebay::compress
