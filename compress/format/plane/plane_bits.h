// Adaptive binary models of the side information of wavefront planes, which encoder and decoder
// must update in the same way. The coder is a binary range coder (G. N. N. Martin, 1979) with a
// range of 32 bits and probabilities of 12 bits that adapt at a rate of 1/16.
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
