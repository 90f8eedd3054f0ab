// Elements as unsigned integers of the same width whose order is that of the values.
#pragma once

#include <cstdint>
#include <type_traits>

#include "proto/contract/tensor.h"

namespace forebay::compress {

enum class CodeOrder : std::uint8_t { kUnsigned, kSigned, kFloat };

inline CodeOrder OrderOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBytes:
    case Dtype::kU8:
    case Dtype::kU16: return CodeOrder::kUnsigned;
    case Dtype::kI8:
    case Dtype::kI16:
    case Dtype::kI32:
    case Dtype::kI64: return CodeOrder::kSigned;
    case Dtype::kF16:
    case Dtype::kBf16:
    case Dtype::kF32:
    case Dtype::kF64: break;
  }
  return CodeOrder::kFloat;
}

template <typename T>
inline constexpr T kTopBit = static_cast<T>(T{1} << (8 * sizeof(T) - 1));

// Floats: negative ones are complemented, others get the top bit, so that -0.0 lies just below
// 0.0 and every pattern, NaN included, has a code of its own.
template <typename T>
inline T CodeOfFloat(T bits) {
  const T sign = static_cast<T>(T{0} - static_cast<T>(bits >> (8 * sizeof(T) - 1)));
  return static_cast<T>(bits ^ (sign | kTopBit<T>));
}

template <typename T>
inline T FloatOfCode(T code) {
  const T sign = static_cast<T>(static_cast<T>(code >> (8 * sizeof(T) - 1)) - T{1});
  return static_cast<T>(code ^ (sign | kTopBit<T>));
}

template <typename T>
inline T CodeOfElement(CodeOrder order, T bits) {
  static_assert(std::is_unsigned_v<T>);
  if (order == CodeOrder::kUnsigned) return bits;
  if (order == CodeOrder::kSigned) return static_cast<T>(bits ^ kTopBit<T>);
  return CodeOfFloat(bits);
}

template <typename T>
inline T ElementOfCode(CodeOrder order, T code) {
  if (order == CodeOrder::kUnsigned) return code;
  if (order == CodeOrder::kSigned) return static_cast<T>(code ^ kTopBit<T>);
  return FloatOfCode(code);
}

}  // namespace forebay::compress
