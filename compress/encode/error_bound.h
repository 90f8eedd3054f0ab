// How far a decoded value may lie from the original.
#pragma once

#include <cstdint>
#include <optional>

namespace forebay::compress {

// Persisted by number; never renumber.
enum class BoundMode : std::uint8_t {
  kLossless = 0,
  kAbsolute = 1,             // |x - y| <= absolute
  kRelative = 2,             // |x - y| <= relative * (range of valid values)
  kAbsoluteAndRelative = 3,  // both: the smaller
  kAbsoluteOrRelative = 4,   // either: the larger
  kPointwise = 5,            // |x - y| <= relative * |x|
};

// A bound on every valid value: finite, not subnormal, not the fill value. What is not valid
// comes back bit for bit, except that a zero may lose its sign. Integers are bounded by the
// floor of the absolute error; kPointwise is for floating point only.
struct ErrorBound {
  BoundMode mode = BoundMode::kLossless;
  double absolute = 0, relative = 0;
  // max - min of the field's valid values where it is known; otherwise each chunk's own range
  // counts, which is never larger.
  std::optional<double> value_range = std::nullopt;
};

}  // namespace forebay::compress
