// Says whether decoded values keep an error bound. Works on any codec's output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "compress/encode/chunk/error_bound.h"
#include "proto/contract/tensor.h"

namespace forebay::compress {

struct BoundReport {
  std::uint64_t valid_count = 0;    // finite, not subnormal, not fill
  std::uint64_t violations = 0;     // valid ones beyond the bound, in exact arithmetic
  std::uint64_t special_mismatches = 0;  // fill, NaN, infinite or subnormal, and not bit for bit
  double value_range = 0;           // max - min of the valid originals
  double bound = 0;                 // on |x - y|; of kPointwise, on |x - y| / |x|
  double error_max = 0;             // |x - y| over the valid ones; infinite where y is not finite
  double relative_error_max = 0;    // |x - y| / |x| over valid x other than 0
  std::optional<std::uint64_t> first_bad;  // index of the first violation or mismatch

  bool ok() const { return violations == 0 && special_mismatches == 0; }
};

// True for a value that a bound speaks of. `bits` are the element's.
bool IsValidValue(Dtype dtype, std::uint64_t bits, std::optional<std::uint64_t> fill_bits);

// The bound on |x - y| that `bound` means for valid values between `low` and `high`; 0 asks for
// exactness. Of kPointwise the relative bound.
double ResolveBound(const ErrorBound& bound, double low, double high);

// True where |x - y| <= bound, and |x - y| <= relative * |x|: decided exactly, without regard to
// rounding.
bool IsWithin(double x, double y, double bound);
bool IsWithinRelative(double x, double y, double relative);

// Compares `decoded` with `original`: dense little-endian elements of `dtype`, equally many. The
// range of a relative bound is that of the valid originals.
BoundReport CheckBound(Dtype dtype, std::span<const std::byte> original,
                       std::span<const std::byte> decoded, const ErrorBound& bound,
                       std::optional<std::uint64_t> fill_bits);

}  // namespace forebay::compress
