// The rounds of OrderSpec's permutation (docs/order.md, section 3); order_permutation.h uses
// them. They are in a header because single calls are bound by the number of instructions in
// flight: when inlined with a constant number of rounds, loops unroll and keys stay in registers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/order_mix.h"

namespace forebay {

// The part of a network that depends on the size of its domain alone. Computed once if many
// networks of one size are used in turn, as for the windows of an epoch.
struct FeistelShape {
  // `domain_size` in [1, 2^41].
  explicit FeistelShape(std::uint64_t domain_size)
      : size(domain_size), low_bits(static_cast<unsigned>(std::bit_width(size - 1)) / 2) {
    FOREBAY_CHECK(size >= 1 && size <= (1ULL << 41));
    low_mask = (1ULL << low_bits) - 1;
    rows = ((size - 1) >> low_bits) + 1;
  }

  std::uint64_t size;
  std::uint64_t rows = 1;      // values of the high part
  std::uint64_t low_mask = 0;  // 2^k - 1
  unsigned low_bits;           // k
};

// Hashes a part of the state with a round key into 64 bits; the top bits are the best mixed.
inline std::uint64_t RoundWord(std::uint64_t part, std::uint64_t key) {
  std::uint64_t x = (part + key) * 0xD6E8FEB86659FD93ULL;
  x ^= x >> 32;
  return x * 0xBF58476D1CE4E5B9ULL;
}

// (x + y) mod m for x, y < m < 2^63: if x + y < m, the wrapped difference is huge and min drops it.
// `x` is known long before `y`, so both candidates are one addition away from the answer.
inline std::uint64_t AddModulo(std::uint64_t x, std::uint64_t y, std::uint64_t m) {
  return std::min(x + y, (x - m) + y);
}

inline std::uint64_t SubtractModulo(std::uint64_t x, std::uint64_t y, std::uint64_t m) {
  return std::min(x - y, (x + m) - y);
}

// Two rounds, one of each kind.
struct FeistelState {
  std::uint64_t low;
  std::uint64_t high;

  void Mix(const FeistelShape& shape, std::uint64_t high_key, std::uint64_t low_key) {
    high = AddModulo(high, MulHigh64(RoundWord(low, high_key), shape.rows), shape.rows);
    low = (low + (RoundWord(high, low_key) >> (64 - shape.low_bits))) & shape.low_mask;
  }
  // Undoes Mix.
  void Unmix(const FeistelShape& shape, std::uint64_t high_key, std::uint64_t low_key) {
    low = (low - (RoundWord(high, low_key) >> (64 - shape.low_bits))) & shape.low_mask;
    high = SubtractModulo(high, MulHigh64(RoundWord(low, high_key), shape.rows), shape.rows);
  }
};

// Round keys that are computed when they are used, for a key that is used once.
struct DrawnKeys {
  std::uint64_t key;
  std::uint64_t operator[](std::size_t round) const { return DrawWord64(key, round); }
};

// Applies the network, again and again until the result is in the domain (cycle walking). Requires
// shape.low_bits >= 1. `keys[i]` is the key of round i.
template <unsigned kRounds, typename Keys>
[[gnu::always_inline]] inline std::uint64_t FeistelForward(const FeistelShape& shape,
                                                           const Keys& keys, std::uint64_t x) {
  do {
    FeistelState state{x & shape.low_mask, x >> shape.low_bits};
    [&]<std::size_t... kPair>(std::index_sequence<kPair...>) {
      (state.Mix(shape, keys[2 * kPair], keys[2 * kPair + 1]), ...);
    }(std::make_index_sequence<kRounds / 2>{});
    x = (state.high << shape.low_bits) | state.low;
  } while (x >= shape.size);
  return x;
}

template <unsigned kRounds, typename Keys>
[[gnu::always_inline]] inline std::uint64_t FeistelInverse(const FeistelShape& shape,
                                                           const Keys& keys, std::uint64_t y) {
  do {
    FeistelState state{y & shape.low_mask, y >> shape.low_bits};
    [&]<std::size_t... kPair>(std::index_sequence<kPair...>) {
      (state.Unmix(shape, keys[kRounds - 2 - 2 * kPair], keys[kRounds - 1 - 2 * kPair]), ...);
    }(std::make_index_sequence<kRounds / 2>{});
    y = (state.high << shape.low_bits) | state.low;
  } while (y >= shape.size);
  return y;
}

}  // namespace forebay
