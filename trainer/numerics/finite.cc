// Tests blocks by integer operations on the bits of the numbers, which the compiler can vectorise,
// and searches only a block that has a hit.
#include "trainer/numerics/finite.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace forebay::train {
namespace {

// Long enough that the test after each block costs nothing, short enough to stay in the first
// cache for the search.
constexpr std::size_t kBlock = 4096;

// Infinities and NaN have every bit of the exponent set. A block is looked at without a branch,
// which compilers turn into vectors.
template <typename Value, typename Bits, Bits kExponent>
std::size_t Find(std::span<const Value> values) {
  const auto is_finite = [](Value value) {
    return (std::bit_cast<Bits>(value) & kExponent) != kExponent;
  };
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::span block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    Bits found = 0;
    for (const Value value : block) found |= static_cast<Bits>(is_finite(value) ? 0 : 1);
    if (found == 0) continue;
    return begin + static_cast<std::size_t>(std::ranges::find_if_not(block, is_finite) -
                                            block.begin());
  }
  return values.size();
}

}  // namespace

std::size_t FirstNotFinite(std::span<const float> values) {
  return Find<float, std::uint32_t, 0x7F80'0000U>(values);
}

std::size_t FirstNotFinite(std::span<const double> values) {
  return Find<double, std::uint64_t, 0x7FF0'0000'0000'0000U>(values);
}

}  // namespace forebay::train
