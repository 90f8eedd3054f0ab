// log2 in fixed point, from integers only: encoders decide by it, and decide alike everywhere.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace forebay::compress {

inline constexpr unsigned kLogFractionBits = 12;

// log2(value) * 4096 for value >= 1, within 1/1000 bit.
inline std::uint64_t FixedLog2(std::uint64_t value) {
  static const auto kTable = [] {
    // By repeated squaring of a number in [1, 2) with 31 fraction bits.
    std::array<std::uint16_t, 2048> table{};
    for (std::uint64_t i = 0; i < table.size(); ++i) {
      std::uint64_t mantissa = (table.size() + i) << 20;
      std::uint32_t fraction = 0;
      for (unsigned bit = 0; bit < kLogFractionBits; ++bit) {
        mantissa = mantissa * mantissa >> 31;
        fraction <<= 1;
        if (mantissa >= 1ULL << 32) {
          mantissa >>= 1;
          fraction |= 1;
        }
      }
      table[i] = static_cast<std::uint16_t>(fraction);
    }
    return table;
  }();
  const auto exponent = static_cast<unsigned>(std::bit_width(value)) - 1;
  const std::uint64_t top = exponent >= 11 ? value >> (exponent - 11) : value << (11 - exponent);
  return (std::uint64_t{exponent} << kLogFractionBits) + kTable[top & 2047];
}

// value * log2(value) * 4096; 0 for 0.
inline std::uint64_t FixedEntropyTerm(std::uint64_t value) {
  return value == 0 ? 0 : value * FixedLog2(value);
}

}  // namespace forebay::compress
