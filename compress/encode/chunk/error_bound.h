// How far a decoded value may lie from the original.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

namespace forebay::compress {

// Persisted by number; never renumber.
enum class BoundMode : std::uint8_t {
  kLossless = 0,
  kAbsolute = 1,                  // |x - y| <= absolute
  kChunkRelative = 2,             // |x - y| <= relative * (range of the chunk's valid values)
  kAbsoluteAndChunkRelative = 3,  // both: the smaller
  kAbsoluteOrChunkRelative = 4,   // either: the larger
  kPointwise = 5,                 // |x - y| <= relative * |x|
};

// A bound on every valid value: finite, not subnormal, not the fill value. What is not valid
// comes back bit for bit, except that a zero may lose its sign. Integers are bounded by the
// floor of the absolute error; kPointwise is for floating point only. A bound relative to the range
// of a whole field, of which a chunk knows nothing, is an absolute one (value_range.h).
struct ErrorBound {
  BoundMode mode = BoundMode::kLossless;
  double absolute = 0, relative = 0;
};

// A number as errors print it: the fewest digits that read back as the same value.
inline std::string NumberText(double value) {
  std::array<char, 32> text{};  // the longest has 24: -2.2250738585072014e-308
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace forebay::compress
