// Inner loops of fitting filters (filter_kernels.h), written so that compilers turn them into
// vector code for each of several processors (for_processors.h). Sums of products wrap, and
// logarithms are read off the bits of floats, so that every version gives the same numbers.
#include "compress/encode/wavefront/filter_kernels.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "compress/encode/for_processors.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

namespace {

// Costs of a block's four quarters. The cost of an error is the logarithm of 5 |error| + 3, read
// off a float: its exponent and the top of its fraction are a piecewise linear logarithm. The bits
// that a residual takes grow like that, and every processor computes the same number.
template <typename Error>
inline __attribute__((always_inline)) void Costs(const Error* errors, std::uint32_t* quarters) {
  std::array<std::uint32_t, kBlockValues> costs;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const auto size = static_cast<float>(std::abs(std::int32_t{errors[i]}) * 5 + 3);
    costs[i] = (std::bit_cast<std::uint32_t>(size) - std::bit_cast<std::uint32_t>(3.0F)) >> 15;
  }
  // Columns are added up first, sixteen at a time, and only then split into quarters: the long loop
  // has no step that a compiler cannot turn into vectors.
  for (std::size_t half = 0; half < 2; ++half) {
    std::array<std::uint32_t, 16> columns{};
    for (std::size_t row = half * 8; row < half * 8 + 8; ++row) {
      for (std::size_t x = 0; x < 16; ++x) columns[x] += costs[row * 16 + x];
    }
    quarters[half * 2] = quarters[half * 2 + 1] = 0;
    for (std::size_t x = 0; x < 8; ++x) {
      quarters[half * 2] += columns[x];
      quarters[half * 2 + 1] += columns[x + 8];
    }
  }
}

template <typename T>
// Inlined into each of its callers, so that it is compiled for their processors.
inline __attribute__((always_inline)) std::uint32_t Difference(
    const T* a, std::size_t a_stride, const T* b, std::size_t b_stride, std::size_t rows) {
  std::uint32_t sum = 0;
  for (std::size_t y = 0; y < rows; ++y) {
    for (std::size_t x = 0; x < 16; ++x) {
      sum += static_cast<std::uint32_t>(std::abs(a[y * a_stride + x] - b[y * b_stride + x]));
    }
  }
  return sum;
}

template <typename T>
inline __attribute__((always_inline)) void Centre(const T* from, std::size_t stride,
                                                  std::size_t rows, std::int32_t middle,
                                                  std::int16_t* to) {
  // Modulo 2^16: a sample of 16 bits less 2^15 is a signed number of 16 bits.
  const auto less = static_cast<std::uint16_t>(middle);
  for (std::size_t y = 0; y < rows; ++y, from += stride, to += 16) {
    for (std::size_t x = 0; x < 16; ++x) {
      to[x] = static_cast<std::int16_t>(static_cast<std::uint16_t>(from[x] - less));
    }
  }
}

}  // namespace

FOREBAY_FOR_PROCESSORS
void BlockErrors(const std::int16_t* taps, std::size_t tap_count, const std::int16_t* weights,
                 const std::int16_t* west, const std::int16_t* north, std::int16_t middle,
                 const std::int16_t* targets, std::int16_t* errors) {
  std::array<std::uint16_t, kBlockValues> sums{};
  for (std::size_t tap = 0; tap < tap_count; ++tap) {
    const auto weight = static_cast<std::uint16_t>(weights[tap]);
    // Standard filters use one to five of up to 21 taps.
    if (weight == 0) continue;
    const std::int16_t* const from = taps + tap * kBlockValues;
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      // Unsigned, because sums wrap modulo 2^16 as the decoder's do, and overflow of signed numbers
      // is undefined.
      sums[i] = static_cast<std::uint16_t>(
          sums[i] + static_cast<std::uint32_t>(weight) * static_cast<std::uint16_t>(from[i]));
    }
  }
  // Round, scale and clamp as WavefrontValue does, but around zero: all values here are less the
  // middle of the range.
  const auto low = static_cast<std::int16_t>(-middle);
  const auto high = static_cast<std::int16_t>(middle - 1);
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const auto rounded = static_cast<std::int16_t>(
        static_cast<std::uint16_t>(sums[i] + (1U << (kWavefrontWeightBits - 1))));
    const auto value = static_cast<std::int16_t>(rounded >> kWavefrontWeightBits);
    errors[i] = std::min(std::max(value, low), high);
  }
  // A clamped filter is confined to its two neighbours before the error is taken.
  if (west != nullptr) {
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      errors[i] = std::min(std::max(errors[i], std::min(west[i], north[i])),
                           std::max(west[i], north[i]));
    }
  }
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    // Both have at most 8 bits and a sign, so the difference fits 16.
    errors[i] = static_cast<std::int16_t>(targets[i] - errors[i]);
  }
}

FOREBAY_FOR_PROCESSORS
void WideBlockErrors(const std::int16_t* taps, std::size_t tap_count, const std::int16_t* weights,
                     const std::int16_t* west, const std::int16_t* north, std::int32_t middle,
                     const std::int16_t* targets, std::int32_t* errors) {
  std::array<std::uint32_t, kBlockValues> sums{};
  for (std::size_t tap = 0; tap < tap_count; ++tap) {
    const std::int16_t weight = weights[tap];
    if (weight == 0) continue;
    const std::int16_t* const from = taps + tap * kBlockValues;
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      // A product of 9 and 16 bits is exact; the sum wraps modulo 2^32, as the decoder's does.
      sums[i] += static_cast<std::uint32_t>(std::int32_t{weight} * std::int32_t{from[i]});
    }
  }
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const auto rounded = static_cast<std::int32_t>(sums[i] + (1U << (kWavefrontWeightBits - 1)));
    errors[i] = std::min(std::max(rounded >> kWavefrontWeightBits, -middle), middle - 1);
  }
  if (west != nullptr) {
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      const std::int32_t w = west[i], n = north[i];
      errors[i] = std::min(std::max(errors[i], std::min(w, n)), std::max(w, n));
    }
  }
  // Errors have 17 bits here: a target and a prediction at opposite ends of 16 bits.
  for (std::size_t i = 0; i < kBlockValues; ++i) errors[i] = targets[i] - errors[i];
}

FOREBAY_FOR_PROCESSORS
void BlockCosts(const std::int16_t* errors, std::uint32_t* quarters) { Costs(errors, quarters); }

FOREBAY_FOR_PROCESSORS
void WideBlockCosts(const std::int32_t* errors, std::uint32_t* quarters) {
  Costs(errors, quarters);
}

FOREBAY_FOR_PROCESSORS
std::int32_t DotProduct(const std::int16_t* a, const std::int16_t* b, std::size_t count) {
  // Callers keep the products small enough (kFitDifferenceMax), so that the sum does not overflow.
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::int32_t{a[i]} * std::int32_t{b[i]};
  return sum;
}

FOREBAY_FOR_PROCESSORS
std::uint32_t BlockDifference(const std::uint8_t* a, std::size_t a_stride, const std::uint8_t* b,
                              std::size_t b_stride, std::size_t rows) {
  return Difference(a, a_stride, b, b_stride, rows);
}

FOREBAY_FOR_PROCESSORS
std::uint32_t BlockDifference(const std::uint16_t* a, std::size_t a_stride,
                              const std::uint16_t* b, std::size_t b_stride, std::size_t rows) {
  return Difference(a, a_stride, b, b_stride, rows);
}

FOREBAY_FOR_PROCESSORS
void CopyCentred(const std::uint8_t* from, std::size_t stride, std::size_t rows,
                 std::int32_t middle, std::int16_t* to) {
  Centre(from, stride, rows, middle, to);
}

FOREBAY_FOR_PROCESSORS
void CopyCentred(const std::uint16_t* from, std::size_t stride, std::size_t rows,
                 std::int32_t middle, std::int16_t* to) {
  Centre(from, stride, rows, middle, to);
}

}  // namespace forebay::compress
