// Checks decoded values against an error bound, in exact arithmetic: where |x - y| rounds to the
// bound itself, what the subtraction rounded away decides (Knuth's two-sum). value_quantiser.cc
// checks every value with it, and chunk_encoder.cc every chunk.
#include "compress/encode/chunk/bound_checker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compress/format/chunk/quantiser.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// Element `index` of `bytes` bytes, as an unsigned integer.
std::uint64_t LoadElement(std::span<const std::byte> elements, std::size_t index,
                          std::size_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, elements.data() + index * bytes, bytes);
  return bits;
}

// Exponent and mantissa of a floating-point element, to tell subnormal numbers, infinities and
// NaNs.
struct FloatFields {
  std::uint64_t exponent, mantissa;
  std::uint64_t exponent_max;
};

std::optional<FloatFields> FieldsOf(Dtype dtype, std::uint64_t bits) {
  int mantissa_bits = 0, exponent_bits = 0;
  switch (dtype) {
    case Dtype::kF16: mantissa_bits = 10, exponent_bits = 5; break;
    case Dtype::kBf16: mantissa_bits = 7, exponent_bits = 8; break;
    case Dtype::kF32: mantissa_bits = 23, exponent_bits = 8; break;
    case Dtype::kF64: mantissa_bits = 52, exponent_bits = 11; break;
    default: return std::nullopt;
  }
  const std::uint64_t exponent_max = (1ULL << exponent_bits) - 1;
  return FloatFields{.exponent = bits >> mantissa_bits & exponent_max,
                     .mantissa = bits & ((1ULL << mantissa_bits) - 1),
                     .exponent_max = exponent_max};
}

void CountValid(double x, double y, const ErrorBound& bound, BoundReport& report) {
  ++report.valid_count;
  // A valid value that decodes to infinity or NaN violates every bound.
  const double error = std::isfinite(y) ? std::fabs(x - y) : HUGE_VAL;
  report.error_max = std::max(report.error_max, error);
  if (x != 0) {
    report.relative_error_max = std::max(report.relative_error_max, error / std::fabs(x));
  }
  const bool within = bound.mode == BoundMode::kPointwise
                          ? IsWithinRelative(x, y, report.bound)
                          : IsWithin(x, y, report.bound);
  if (!within) ++report.violations;
}

}  // namespace

bool IsValidValue(Dtype dtype, std::uint64_t bits, std::optional<std::uint64_t> fill_bits) {
  if (fill_bits.has_value() && bits == *fill_bits) return false;
  const auto fields = FieldsOf(dtype, bits);
  if (!fields.has_value()) return true;
  // Infinities and NaNs are not valid, and neither are subnormal numbers; a zero is.
  if (fields->exponent == fields->exponent_max) return false;
  return fields->exponent != 0 || fields->mantissa == 0;
}

double ResolveBound(const ErrorBound& bound, double low, double high) {
  const double relative = bound.relative * (high - low);
  switch (bound.mode) {
    case BoundMode::kLossless: return 0;
    case BoundMode::kAbsolute: return bound.absolute;
    case BoundMode::kChunkRelative: return relative;
    case BoundMode::kAbsoluteAndChunkRelative: return std::min(bound.absolute, relative);
    case BoundMode::kAbsoluteOrChunkRelative: return std::max(bound.absolute, relative);
    case BoundMode::kPointwise: break;
  }
  return bound.relative;
}

bool IsWithin(double x, double y, double bound) {
  const double difference = x - y;
  if (!(std::fabs(difference) <= bound)) return false;  // also where y is not a number
  if (std::fabs(difference) < bound) return true;
  // A tie: the difference rounds to the bound itself. Two-sum (D. Knuth, TAOCP 2, 4.2.2) gives
  // exactly what the subtraction rounded away, and its sign decides.
  const double back = difference - x;
  const double rest = (x - (difference - back)) + (-y - back);
  return difference > 0 ? rest <= 0 : rest >= 0;
}

bool IsWithinRelative(double x, double y, double relative) {
  double bound = relative * std::fabs(x);
  // Rounded up, or too small to tell: one step less is surely within.
  const bool exact_or_less = bound > 0x1p-900 && std::fma(relative, std::fabs(x), -bound) >= 0;
  if (bound > 0 && !exact_or_less) bound = std::nextafter(bound, 0);
  return IsWithin(x, y, bound);
}

BoundReport CheckBound(Dtype dtype, std::span<const std::byte> original,
                       std::span<const std::byte> decoded, const ErrorBound& bound,
                       std::optional<std::uint64_t> fill_bits) {
  const std::size_t bytes = DtypeBytes(dtype);
  FOREBAY_CHECK(original.size() == decoded.size() && original.size() % bytes == 0);
  const std::size_t count = original.size() / bytes;
  // A first pass finds the range that relative bounds refer to; the second compares.
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = LoadElement(original, i, bytes);
    if (!IsValidValue(dtype, bits, fill_bits)) continue;
    low = std::min(low, ValueOfElement(dtype, bits));
    high = std::max(high, ValueOfElement(dtype, bits));
  }
  BoundReport report;
  // Without a valid value `low` is still above `high`.
  report.value_range = high >= low ? high - low : 0;
  // Only the width of the range counts for a relative bound.
  report.bound = ResolveBound(bound, 0, report.value_range);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = LoadElement(original, i, bytes);
    const std::uint64_t decoded_bits = LoadElement(decoded, i, bytes);
    const std::uint64_t bad_before = report.violations + report.special_mismatches;
    if (!IsValidValue(dtype, bits, fill_bits)) {
      report.special_mismatches += bits != decoded_bits ? 1 : 0;
    } else if (bits == decoded_bits) {
      ++report.valid_count;
    } else if (bound.mode == BoundMode::kLossless || dtype == Dtype::kI64) {
      // Doubles cannot tell all 64-bit integers apart, which are never lossy.
      ++report.valid_count;
      ++report.violations;
    } else {
      CountValid(ValueOfElement(dtype, bits), ValueOfElement(dtype, decoded_bits), bound, report);
    }
    // The first one is enough for a message; the counts say how many there are.
    if (bad_before != report.violations + report.special_mismatches && !report.first_bad) {
      report.first_bad = i;
    }
  }
  return report;
}

}  // namespace forebay::compress
