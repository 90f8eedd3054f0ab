// The AVX-512 kernel of linear_values.h: sixteen values at a time. Products are taken in f64 and
// rounded once to f32, as the format says.
#include <immintrin.h>

#include "compress/decode/chunk/linear_values.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kValues = 16;

template <std::size_t kSampleBytes>
__m512i LoadSamples(const std::byte* from) {
  if constexpr (kSampleBytes == 1) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  } else {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
}

template <std::size_t kSampleBytes>
std::size_t Emit(const LinearRun& run, std::size_t count, std::byte* to) {
  const __m512i sample_mask = _mm512_set1_epi32(static_cast<int>(run.sample_mask));
  const __m512i base = _mm512_set1_epi32(static_cast<int>(run.base));
  const __m128i shift = _mm_cvtsi32_si128(run.shift);
  const __m512d step = _mm512_set1_pd(run.step);
  std::size_t at = 0;
  // Whole registers only: a load never reaches beyond the samples, and the caller does the rest.
  for (; count - at >= kValues; at += kValues) {
    __m512i numbers = LoadSamples<kSampleBytes>(run.samples + at * kSampleBytes);
    numbers = _mm512_sll_epi32(_mm512_and_si512(numbers, sample_mask), shift);
    numbers = _mm512_add_epi32(numbers, base);
    // A number of 32 bits is exact in f64; only the product and the conversion to f32 round.
    const __m512d low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(numbers));
    const __m512d high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(numbers, 1));
    const __m256i low_values = _mm256_castps_si256(_mm512_cvtpd_ps(_mm512_mul_pd(low, step)));
    const __m256i high_values = _mm256_castps_si256(_mm512_cvtpd_ps(_mm512_mul_pd(high, step)));
    __m512i values = _mm512_inserti64x4(_mm512_castsi256_si512(low_values), high_values, 1);
    for (std::uint32_t m = 0; m < run.mask_count; ++m) {
      // Later masks overwrite earlier ones, as in the general assembler.
      const __m128i bytes =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(run.masks[m] + at));
      values = _mm512_mask_mov_epi32(values, _mm_test_epi8_mask(bytes, bytes),
                                     _mm512_set1_epi32(static_cast<int>(run.patterns[m])));
    }
    _mm512_storeu_si512(to + at * sizeof(float), values);
  }
  return at;
}

}  // namespace

std::size_t EmitLinearValuesAvx512(const LinearRun& run, std::size_t count, std::byte* to) {
  return run.sample_bytes == 1 ? Emit<1>(run, count, to) : Emit<2>(run, count, to);
}

}  // namespace forebay::compress
