// ModelRandom: where all of a sequence's choices come from, so that its seed tells it whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/check.h"
#include "proto/contract/mix64.h"

namespace forebay::model {

// A value type. The same seed gives the same draws on every machine.
class ModelRandom {
 public:
  explicit ModelRandom(std::uint64_t seed) : state_(Mix64(seed)) {}

  std::uint64_t Word() { return NextWord64(state_); }
  // 0 to bound - 1.
  std::uint64_t Below(std::uint64_t bound) {
    FOREBAY_CHECK(bound > 0);
    return Word() % bound;
  }
  // `first` to `last`, both included.
  std::uint64_t Between(std::uint64_t first, std::uint64_t last) {
    return first + Below(last - first + 1);
  }
  bool Chance(std::uint64_t percent) { return Below(100) < percent; }
  template <typename T, std::size_t kCount>
  T OneOf(const T (&choices)[kCount]) {
    return choices[Below(kCount)];
  }
  // The index of one of the weights, drawn in proportion to them.
  std::size_t Weighted(std::span<const std::uint32_t> weights) {
    std::uint64_t total = 0;
    for (const std::uint32_t weight : weights) total += weight;
    std::uint64_t draw = Below(total);
    std::size_t index = 0;
    while (draw >= weights[index]) draw -= weights[index++];
    return index;
  }

 private:
  std::uint64_t state_;
};

}  // namespace forebay::model
