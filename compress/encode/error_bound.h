// How far a decoded value may lie from the original.
#pragma once

#include <cstdint>

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

}  // namespace forebay::compress
