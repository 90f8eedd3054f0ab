// Contexts, frequencies and rANS of a wavefront-coded chunk.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/encode/wavefront/wavefront_work.h"

namespace forebay::compress {

// How often each symbol is counted to occur in 2048, and the sum of those before it.
struct SymbolFrequencies {
  std::array<std::uint16_t, 256> frequency{};
  std::array<std::uint16_t, 256> before{};
};

struct GroupFrequencies {
  std::array<SymbolFrequencies, kWavefrontContexts> contexts;
};

// Chooses thresholds (into work.parameters), fills work.contexts and counts symbols: intra, inter.
template <typename T>
std::array<GroupFrequencies, 2> ModelContexts(WavefrontWork<T>& work);

// Lane states and words, as they follow the side information in the body.
template <typename T>
std::vector<std::byte> EncodeSymbols(const WavefrontWork<T>& work,
                                     const std::array<GroupFrequencies, 2>& frequencies);

// The symbol of a residual, and the bits that follow it as they are.
struct WavefrontToken {
  std::uint32_t symbol, plain_bits, plain_value;
};
inline WavefrontToken TokenOf(std::uint32_t residual, std::uint32_t bits) {
  if (bits <= 8) return {residual, 0, 0};
  const bool negative = residual >> (bits - 1) != 0;
  const std::uint32_t folded =
      negative ? ((~residual & ((1U << bits) - 1)) << 1 | 1) : residual << 1;
  if (folded < kWavefrontDirectTokens) return {folded, 0, 0};
  const auto octave = static_cast<std::uint32_t>(std::bit_width(folded)) - 1;
  const std::uint32_t plain = octave - 2;
  return {kWavefrontDirectTokens + (octave - 4) * 4 + (folded >> plain & 3), plain,
          folded & ((1U << plain) - 1)};
}

}  // namespace forebay::compress
