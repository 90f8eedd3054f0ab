// Checks whether decoded values keep an error bound. Works on the output of any codec.
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

// Whether an error bound applies to the value with these bits: it is finite, not subnormal and not
// the fill value.
bool IsValidValue(Dtype dtype, std::uint64_t bits, std::optional<std::uint64_t> fill_bits);

// The bound on |x - y| that `bound` means for valid values between `low` and `high`; 0 means exact.
// For kPointwise, the relative bound.
double ResolveBound(const ErrorBound& bound, double low, double high);

// Whether |x - y| <= bound, and whether |x - y| <= relative * |x|: decided exactly, as if nothing
// were rounded.
bool IsWithin(double x, double y, double bound);
bool IsWithinRelative(double x, double y, double relative);

// Compares `decoded` with `original`: dense little-endian elements of `dtype`, equally many. The
// range of a relative bound is that of the valid originals.
BoundReport CheckBound(Dtype dtype, std::span<const std::byte> original,
                       std::span<const std::byte> decoded, const ErrorBound& bound,
                       std::optional<std::uint64_t> fill_bits);

}  // namespace forebay::compress
