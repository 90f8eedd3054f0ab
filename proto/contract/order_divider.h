// InvariantDivider: exact division by a number that is known in advance, with a multiplication in
// place of a division (Granlund, Montgomery, "Division by invariant integers using multiplication",
// PLDI 1994; simplified, with one comparison in place of a wider reciprocal).
#pragma once

#include <cstdint>
#include <limits>

#include "proto/contract/order_mix.h"

namespace forebay {

// An immutable value; thread-safe.
class InvariantDivider {
 public:
  struct Parts {
    std::uint64_t quotient;
    std::uint64_t remainder;
  };

  // `divisor` in [1, 2^63].
  explicit InvariantDivider(std::uint64_t divisor)
      : divisor_(divisor),
        reciprocal_(std::numeric_limits<std::uint64_t>::max() / divisor) {}

  // The reciprocal is too small by less than 1, so the quotient is too small by at most
  // dividend / 2^64 before rounding, which is less than 1: it is exact or one too small.
  Parts Divide(std::uint64_t dividend) const {
    const std::uint64_t quotient = MulHigh64(dividend, reciprocal_);
    const std::uint64_t remainder = dividend - quotient * divisor_;
    if (remainder >= divisor_) return {quotient + 1, remainder - divisor_};
    return {quotient, remainder};
  }

 private:
  std::uint64_t divisor_;
  std::uint64_t reciprocal_;
};

}  // namespace forebay
