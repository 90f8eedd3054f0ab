// Values of the two 16-bit floating-point types as doubles, exactly. The way back, which rounds, is
// FloatElementOf in quantiser.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace forebay::compress {

// The value of an IEEE 754 binary16 number. Every NaN gives the same quiet NaN, with its sign.
inline double ValueOfF16(std::uint16_t bits) {
  const unsigned exponent = bits >> 10 & 31U;
  const unsigned mantissa = bits & 1023U;
  double value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = mantissa * 0x1p-24;
  } else {
    // The biases of the exponents, 15 and 1023, are 1008 apart.
    value = std::bit_cast<double>(std::uint64_t{exponent + 1008} << 52 |
                                  std::uint64_t{mantissa} << 42);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// The value of a bfloat16 number, which is the upper half of a binary32 number.
inline double ValueOfBf16(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16));
}

}  // namespace forebay::compress
