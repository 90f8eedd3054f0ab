// The AVX2 kernel of learned predictors: 32 pixels in a register, in two halves. Products have 16
// bits: one instruction multiplies two inputs of 8 pixels by two weights and adds the products
// exactly.
#include <immintrin.h>

#include <array>
#include <cstring>

#include "compress/decode/learned/predictor_run.h"

namespace forebay::compress {
namespace {

// Of two inputs: register k has pixels 4k to 4k + 3 of each 16, the inputs side by side in 16
// bits.
struct Pairs {
  std::array<__m256i, 4> pixels;
};

using PairRows = std::array<Pairs, kPredictorWidthMax / 2>;

Pairs Interleave(const PredictorRow* rows, std::size_t half) {
  const auto load = [&](std::size_t row) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[row].data() + 32 * half));
  };
  const __m256i zero = _mm256_setzero_si256();
  const __m256i a = load(0);
  const __m256i b = load(1);
  const __m256i a_low = _mm256_unpacklo_epi8(a, zero);
  const __m256i a_high = _mm256_unpackhi_epi8(a, zero);
  const __m256i b_low = _mm256_unpacklo_epi8(b, zero);
  const __m256i b_high = _mm256_unpackhi_epi8(b, zero);
  return {{_mm256_unpacklo_epi16(a_low, b_low), _mm256_unpackhi_epi16(a_low, b_low),
           _mm256_unpacklo_epi16(a_high, b_high), _mm256_unpackhi_epi16(a_high, b_high)}};
}

// One output of a layer for 32 pixels, shifted and rounded, in 32 bits.
[[gnu::always_inline]] inline Pairs LayerSums(const PredictorLayer& layer, std::int32_t bias,
                                              std::uint32_t output, const PairRows& inputs) {
  const std::int8_t* const weights = layer.weights.data() + output * layer.stride();
  const std::uint32_t shift = layer.shift[output];
  const __m256i start = _mm256_set1_epi32(bias + (1 << shift >> 1));
  __m256i sum0 = start, sum1 = start, sum2 = start, sum3 = start;
  for (std::size_t i = 0; i < layer.stride(); i += 2) {
    // Rows of weights are padded with zeros to a multiple of four, so i + 1 exists.
    const int two = (weights[i] & 0xFFFF) | weights[i + 1] * 0x10000;
    const __m256i weight = _mm256_set1_epi32(two);
    const Pairs& input = inputs[i / 2];
    // Two products of 8-bit numbers fit 17 bits. A multiplication of bytes (maddubs) would
    // saturate.
    sum0 = _mm256_add_epi32(sum0, _mm256_madd_epi16(input.pixels[0], weight));
    sum1 = _mm256_add_epi32(sum1, _mm256_madd_epi16(input.pixels[1], weight));
    sum2 = _mm256_add_epi32(sum2, _mm256_madd_epi16(input.pixels[2], weight));
    sum3 = _mm256_add_epi32(sum3, _mm256_madd_epi16(input.pixels[3], weight));
  }
  const __m128i count = _mm_cvtsi32_si128(static_cast<int>(shift));
  return {{_mm256_sra_epi32(sum0, count), _mm256_sra_epi32(sum1, count),
           _mm256_sra_epi32(sum2, count), _mm256_sra_epi32(sum3, count)}};
}

// Clamped to 0 .. 255, pixels in their order again.
[[gnu::always_inline]] inline __m256i PackBytes(const Pairs& sums) {
  return _mm256_packus_epi16(_mm256_packs_epi32(sums.pixels[0], sums.pixels[1]),
                             _mm256_packs_epi32(sums.pixels[2], sums.pixels[3]));
}

void Store(PredictorRow& row, std::size_t half, __m256i bytes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(row.data() + 32 * half), bytes);
}

// Clamps corrections, rounds them to whole steps, and notes the pixels whose correction was rounded
// up: their residuals are negated (docs/pack_planes.md, "Learned").
void StoreCorrections(const Pairs& sums, std::size_t part, PredictorBatch& batch) {
  const __m256i most = _mm256_set1_epi16(kCorrectionMax);
  const __m256i least = _mm256_set1_epi16(-kCorrectionMax);
  const __m256i half = _mm256_set1_epi16(1 << (kCorrectionBits - 1));
  const auto clamp = [&](__m256i first, __m256i second) {
    return _mm256_min_epi16(_mm256_max_epi16(_mm256_packs_epi32(first, second), least), most);
  };
  const __m256i low = clamp(sums.pixels[0], sums.pixels[1]);
  const __m256i high = clamp(sums.pixels[2], sums.pixels[3]);
  const auto round = [&](__m256i a) {
    return _mm256_srai_epi16(_mm256_add_epi16(a, half), kCorrectionBits);
  };
  Store(batch.corrections, part, _mm256_packs_epi16(round(low), round(high)));
  const __m256i halves =
      _mm256_packus_epi16(_mm256_and_si256(low, half), _mm256_and_si256(high, half));
  Store(batch.mirrored, part, _mm256_cmpgt_epi8(halves, _mm256_setzero_si256()));
}

void RunHalf(const PredictorNet& net, std::size_t half, PredictorBatch& batch) {
  // Two buffers in turn: a layer reads the one that the layer before wrote.
  alignas(64) std::array<std::array<PredictorRow, kPredictorWidthMax>, 2> hidden;
  PairRows pairs;
  const PredictorRow* inputs = batch.inputs.data();
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    const PredictorLayer& layer = net.layers[l];
    for (std::size_t i = 0; i < layer.stride(); i += 2) {
      pairs[i / 2] = Interleave(inputs + i, half);
    }
    const std::int32_t* const bias = l == 0 ? net.shifted_bias.data() : layer.bias.data();
    if (l + 1 == net.layers.size()) {
      StoreCorrections(LayerSums(layer, bias[0], 0, pairs), half, batch);
      Store(batch.energies, half, PackBytes(LayerSums(layer, bias[1], 1, pairs)));
      return;
    }
    for (std::uint32_t o = 0; o < layer.outputs; ++o) {
      Store(hidden[l % 2][o], half, PackBytes(LayerSums(layer, bias[o], o, pairs)));
    }
    inputs = hidden[l % 2].data();
  }
}

}  // namespace

void RunPredictorAvx2(const PredictorNet& net, PredictorBatch& batch) {
  RunHalf(net, 0, batch);
  RunHalf(net, 1, batch);
}

}  // namespace forebay::compress
