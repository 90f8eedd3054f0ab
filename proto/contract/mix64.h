// Pseudo-random words of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014, with Stafford's variant 13 constants. Frozen, because orders, owners,
// selections and augmentations depend on every bit.
#pragma once

#include <cstdint>

namespace forebay {

inline constexpr std::uint64_t kGolden64 = 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio, odd

// The finaliser: a bijection of 64-bit words in which every input bit reaches every output bit.
constexpr std::uint64_t Mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// The next word of the generator, whose whole state is `state`.
constexpr std::uint64_t NextWord64(std::uint64_t& state) { return Mix64(state += kGolden64); }

}  // namespace forebay
