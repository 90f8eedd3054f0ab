// The AVX2 kernel of linear_values.h: eight values at a time. Products are taken in f64 and rounded
// once to f32, as the format says, which is why each register of numbers becomes two of doubles.
#include <immintrin.h>

#include "compress/decode/chunk/linear_values.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kValues = 8;

template <std::size_t kSampleBytes>
__m256i LoadSamples(const std::byte* from) {
  const auto* const lanes = reinterpret_cast<const __m128i*>(from);
  if constexpr (kSampleBytes == 1) return _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes));
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(lanes));
}

template <std::size_t kSampleBytes>
std::size_t Emit(const LinearRun& run, std::size_t count, std::byte* to) {
  const __m256i sample_mask = _mm256_set1_epi32(static_cast<int>(run.sample_mask));
  const __m256i base = _mm256_set1_epi32(static_cast<int>(run.base));
  const __m128i shift = _mm_cvtsi32_si128(run.shift);
  const __m256d step = _mm256_set1_pd(run.step);
  std::size_t at = 0;
  // Whole registers only: a load never reaches beyond the samples, and the caller does the rest.
  for (; count - at >= kValues; at += kValues) {
    __m256i numbers = LoadSamples<kSampleBytes>(run.samples + at * kSampleBytes);
    numbers = _mm256_sll_epi32(_mm256_and_si256(numbers, sample_mask), shift);
    numbers = _mm256_add_epi32(numbers, base);
    // A number of 32 bits is exact in f64; only the product and the conversion to f32 round.
    const __m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(numbers));
    const __m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(numbers, 1));
    const __m128i low_values = _mm_castps_si128(_mm256_cvtpd_ps(_mm256_mul_pd(low, step)));
    const __m128i high_values = _mm_castps_si128(_mm256_cvtpd_ps(_mm256_mul_pd(high, step)));
    __m256i values = _mm256_inserti128_si256(_mm256_castsi128_si256(low_values), high_values, 1);
    for (std::uint32_t m = 0; m < run.mask_count; ++m) {
      const __m256i bytes = _mm256_cvtepu8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(run.masks[m] + at)));
      // Later masks overwrite earlier ones, as in the general assembler.
      const __m256i unset = _mm256_cmpeq_epi32(bytes, _mm256_setzero_si256());
      values = _mm256_blendv_epi8(_mm256_set1_epi32(static_cast<int>(run.patterns[m])), values,
                                  unset);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at * sizeof(float)), values);
  }
  return at;
}

}  // namespace

std::size_t EmitLinearValuesAvx2(const LinearRun& run, std::size_t count, std::byte* to) {
  return run.sample_bytes == 1 ? Emit<1>(run, count, to) : Emit<2>(run, count, to);
}

}  // namespace forebay::compress
