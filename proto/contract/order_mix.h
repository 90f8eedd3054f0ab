// The integer arithmetic that every part of OrderSpec uses (docs/order.md, section 2).
// Frozen: a changed constant would change the order of every existing stream.
#pragma once

#include <cstdint>

#include "proto/contract/mix64.h"

namespace forebay {

// floor(x * y / 2^64).
constexpr std::uint64_t MulHigh64(std::uint64_t x, std::uint64_t y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(x) * y) >> 64);
}

// Folds one more word into the hash state `state`; for a fixed state, a bijection of `word`.
constexpr std::uint64_t Absorb64(std::uint64_t state, std::uint64_t word) {
  return Mix64((state ^ word) + kGolden64);
}

// The `index`-th word of the stream of pseudo-random words with key `key`.
constexpr std::uint64_t DrawWord64(std::uint64_t key, std::uint64_t index) {
  return Mix64(key + (index + 1) * kGolden64);
}

}  // namespace forebay
