// The encoder's inner loops over 16 x 16 blocks of 16-bit values, compiled for several
// processors and chosen when the program starts. Integers only: all give the same numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace forebay::compress {

inline constexpr std::size_t kBlockValues = 256;

// The errors of a linear filter on a block: errors[i] = targets[i] - clamp(prediction), with sums
// modulo 2^16. `taps` holds `tap_count` lines of 256; `west` and `north` are null unless the filter
// is clamped to them.
void BlockErrors(const std::int16_t* taps, std::size_t tap_count, const std::int16_t* weights,
                 const std::int16_t* west, const std::int16_t* north, std::int16_t middle,
                 const std::int16_t* targets, std::int16_t* errors);

// The same of samples of more than 8 bits: sums modulo 2^32, errors of 17 bits.
void WideBlockErrors(const std::int16_t* taps, std::size_t tap_count, const std::int16_t* weights,
                     const std::int16_t* west, const std::int16_t* north, std::int32_t middle,
                     const std::int16_t* targets, std::int32_t* errors);

// Estimated bits, in 1/256, of the errors in each quarter of a block: log2(error + 0.6), read
// off a float's exponent and the top of its fraction.
void BlockCosts(const std::int16_t* errors, std::uint32_t* quarters);
void WideBlockCosts(const std::int32_t* errors, std::uint32_t* quarters);

// The sum of products; exact where it fits 32 bits.
std::int32_t DotProduct(const std::int16_t* a, const std::int16_t* b, std::size_t count);

// The sum of absolute differences of `rows` rows of 16 samples.
std::uint32_t BlockDifference(const std::uint8_t* a, std::size_t a_stride, const std::uint8_t* b,
                              std::size_t b_stride, std::size_t rows);
std::uint32_t BlockDifference(const std::uint16_t* a, std::size_t a_stride,
                              const std::uint16_t* b, std::size_t b_stride, std::size_t rows);

// `rows` rows of 16 samples, less `middle`, one behind the other.
void CopyCentred(const std::uint8_t* from, std::size_t stride, std::size_t rows,
                 std::int32_t middle, std::int16_t* to);
void CopyCentred(const std::uint16_t* from, std::size_t stride, std::size_t rows,
                 std::int32_t middle, std::int16_t* to);

}  // namespace forebay::compress
