// Adaptive binary probabilities of the plane codec's side information: what encoder and decoder
// must move alike. A binary range coder in the manner of G. N. N. Martin (1979), with 32-bit
// range and 12-bit probabilities that learn at a rate of 1/16.
#pragma once

#include <array>
#include <cstdint>

namespace forebay::compress {

inline constexpr std::uint32_t kBitProbabilityBits = 12;
inline constexpr std::uint32_t kBitLearningShift = 4;

// The probability that the next bit is 0, in 1/4096; never 0 or 1.
struct BitModel {
  std::uint16_t zero = 1U << (kBitProbabilityBits - 1);

  void Learn(bool bit) {
    if (bit) {
      zero = static_cast<std::uint16_t>(zero - (zero >> kBitLearningShift));
    } else {
      zero = static_cast<std::uint16_t>(
          zero + (((1U << kBitProbabilityBits) - zero) >> kBitLearningShift));
    }
  }
};

// Models of one number of `kBits` bits, most significant first, each bit in the light of those
// before it.
template <unsigned kBits>
struct TreeModel {
  std::array<BitModel, 1U << kBits> nodes;
};

// Models of an unsigned number in Exp-Golomb form: its bit length as a tree, then plain bits.
struct NumberModel {
  TreeModel<5> length;
};

}  // namespace forebay::compress
