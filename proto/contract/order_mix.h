// The integer arithmetic that every part of OrderSpec v1 is made of (docs/order.md, section 2).
// Frozen: changing a constant changes the order of every stream in the world.
#pragma once

#include <cstdint>

namespace forebay {

inline constexpr std::uint64_t kOrderGolden = 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio, odd

// floor(x * y / 2^64).
constexpr std::uint64_t MulHigh64(std::uint64_t x, std::uint64_t y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(x) * y) >> 64);
}

// A bijection of 64-bit words in which every input bit reaches every output bit. The finaliser
// of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014, with Stafford's variant 13 constants.
constexpr std::uint64_t Mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Folds one more word into the hash state `state`; for a fixed state, a bijection of `word`.
constexpr std::uint64_t Absorb64(std::uint64_t state, std::uint64_t word) {
  return Mix64((state ^ word) + kOrderGolden);
}

// The `index`-th word of the stream of pseudo-random words that `key` stands for.
constexpr std::uint64_t DrawWord64(std::uint64_t key, std::uint64_t index) {
  return Mix64(key + (index + 1) * kOrderGolden);
}

}  // namespace forebay
