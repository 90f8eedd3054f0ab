// Values of quantised numbers (docs/pack_chunk.md, section 4), in arithmetic that every machine
// does alike: IEEE 754 doubles, one rounding for each operation, and a power of two of our own,
// because libraries differ in the last bit. Compiled with -ffp-contract=off. The encoder decodes
// every number with this code to check its bound.
#include "compress/format/chunk/quantiser.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "compress/format/chunk/half_precision.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// A floating-point type of 16 bits.
struct SmallFloat {
  int mantissa_bits, exponent_bits;
};

constexpr SmallFloat kHalf = {10, 5};
constexpr SmallFloat kBrain = {7, 8};

// The number of `format` that is nearest to `value`, ties to even; beyond the range, infinity.
std::uint32_t SmallOfValue(SmallFloat format, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint32_t>(bits >> 63)
                    << (format.mantissa_bits + format.exponent_bits);
  const std::uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) return sign | infinity | 1U << (format.mantissa_bits - 1);
  const int exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  if (exponent > bias) return sign | infinity;
  int shift = 52 - format.mantissa_bits;
  const bool subnormal = exponent < 1 - bias;
  // Subnormal numbers have no implied leading bit, so they lose one more bit for each step of the
  // exponent.
  if (subnormal) shift += 1 - bias - exponent;
  // Doubles below their own normal range are far below half of the smallest value here.
  if (shift > 53) return sign;
  const std::uint64_t mantissa = (bits & ((1ULL << 52) - 1)) | 1ULL << 52;
  const std::uint64_t rest = mantissa & ((1ULL << shift) - 1);
  const std::uint64_t half = 1ULL << (shift - 1);
  auto rounded = static_cast<std::uint32_t>(mantissa >> shift);
  if (rest > half || (rest == half && (rounded & 1) != 0)) ++rounded;
  if (subnormal) return sign | rounded;
  // A mantissa that rounds up to two carries into the exponent, as it should.
  return sign | ((static_cast<std::uint32_t>(exponent + bias) << format.mantissa_bits) + rounded -
                 (1U << format.mantissa_bits));
}

// sqrt(2) * ln(2)^k / k!
constexpr std::array<double, 15> kPowerTerms = {
    1.4142135623730951,     0.9802581434685472,     0.3397315841830749,
    0.0784946632412207,     0.013602088628663626,   0.001885649876536937,
    0.00021783881590746449, 2.1570623008967995e-05, 1.8689520651984563e-06,
    1.4393987273266634e-07, 9.977151695480503e-09,  6.286940516128353e-10,
    3.631479244252046e-11,  1.936268922627128e-12,  9.586566746605977e-14};

template <typename T>
void Store(std::byte* elements, std::size_t index, T value) {
  std::memcpy(elements + index * sizeof(T), &value, sizeof(T));
}

// The value of a number under a logarithmic quantiser: its sign is the value's, its magnitude
// less one counts steps from the origin.
double LogarithmValue(const Quantiser& quantiser, std::int64_t number) {
  if (number == 0) return 0;
  // Negated without a sign: the smallest number has no positive counterpart.
  const auto bits = static_cast<std::uint64_t>(number);
  const std::uint64_t magnitude = number < 0 ? 0 - bits : bits;
  const std::uint64_t logarithm = (magnitude - 1 + quantiser.origin) * quantiser.integer_step;
  const double value = PowerOfTwo(static_cast<std::int64_t>(logarithm));
  return number < 0 ? -value : value;
}

template <typename Number>
void DequantiseFloats(const Quantiser& quantiser, Dtype dtype, std::span<const Number> numbers,
                      std::byte* elements) {
  const bool linear = quantiser.kind == QuantiserKind::kLinear;
  const double step = quantiser.linear_step;
  // This case has a loop of its own without a branch on kind and type: GCC turns it into vector
  // instructions if the numbers have 32 bits.
  if (linear && dtype == Dtype::kF32) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      Store(elements, i, static_cast<float>(static_cast<double>(numbers[i]) * step));
    }
    return;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double value = linear ? static_cast<double>(numbers[i]) * step
                                : LogarithmValue(quantiser, numbers[i]);
    switch (dtype) {
      case Dtype::kF64: Store(elements, i, value); break;
      case Dtype::kF32: Store(elements, i, static_cast<float>(value)); break;
      default:
        Store(elements, i, static_cast<std::uint16_t>(FloatElementOf(dtype, value)));
        break;
    }
  }
}

template <typename Element, typename Number>
void DequantiseIntegers(std::uint64_t step, std::span<const Number> numbers,
                        std::byte* elements) {
  constexpr std::int64_t kMin = std::numeric_limits<Element>::min();
  constexpr std::int64_t kMax = std::numeric_limits<Element>::max();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    // 32 bits times 32 bits: no overflow.
    const auto number = static_cast<std::int32_t>(numbers[i]);
    const std::int64_t value = static_cast<std::int64_t>(step) * number;
    // The nearest multiple of the step may lie just outside the type's range.
    Store(elements, i, static_cast<Element>(std::clamp(value, kMin, kMax)));
  }
}

}  // namespace

double ValueOfElement(Dtype dtype, std::uint64_t bits) {
  switch (dtype) {
    case Dtype::kBytes:
    case Dtype::kU8: return static_cast<double>(static_cast<std::uint8_t>(bits));
    case Dtype::kI8: return static_cast<double>(static_cast<std::int8_t>(bits));
    case Dtype::kU16: return static_cast<double>(static_cast<std::uint16_t>(bits));
    case Dtype::kI16: return static_cast<double>(static_cast<std::int16_t>(bits));
    case Dtype::kI32: return static_cast<double>(static_cast<std::int32_t>(bits));
    case Dtype::kI64: return static_cast<double>(static_cast<std::int64_t>(bits));
    case Dtype::kF16: return ValueOfF16(static_cast<std::uint16_t>(bits));
    case Dtype::kBf16: return ValueOfBf16(static_cast<std::uint16_t>(bits));
    case Dtype::kF32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case Dtype::kF64: break;
  }
  return std::bit_cast<double>(bits);
}

std::uint64_t FloatElementOf(Dtype dtype, double value) {
  switch (dtype) {
    case Dtype::kF16: return SmallOfValue(kHalf, value);
    case Dtype::kBf16: return SmallOfValue(kBrain, value);
    case Dtype::kF32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    default: break;
  }
  FOREBAY_CHECK(dtype == Dtype::kF64);
  return std::bit_cast<std::uint64_t>(value);
}

// 2^(logarithm / 2^32) by a polynomial around the middle of an octave, and an exponent.
double PowerOfTwo(std::int64_t logarithm) {
  const std::int64_t exponent = std::clamp<std::int64_t>(logarithm >> 32, -1022, 1023);
  const auto fraction = static_cast<std::uint32_t>(logarithm);
  // In [-0.5, 0.5): exact.
  const double distance = static_cast<double>(fraction) * 0x1p-32 - 0.5;
  double value = kPowerTerms.back();
  for (std::size_t k = kPowerTerms.size() - 1; k-- > 0;) {
    // Two statements, so that nothing suggests to fuse them: a fused step would round once and
    // differ.
    value = value * distance;
    value = value + kPowerTerms[k];
  }
  return value * std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

template <typename Number>
void Dequantise(const Quantiser& quantiser, Dtype dtype, std::span<const Number> numbers,
                std::byte* elements) {
  const std::uint64_t step = quantiser.integer_step;
  switch (dtype) {
    case Dtype::kBytes:
    case Dtype::kU8: return DequantiseIntegers<std::uint8_t>(step, numbers, elements);
    case Dtype::kI8: return DequantiseIntegers<std::int8_t>(step, numbers, elements);
    case Dtype::kU16: return DequantiseIntegers<std::uint16_t>(step, numbers, elements);
    case Dtype::kI16: return DequantiseIntegers<std::int16_t>(step, numbers, elements);
    case Dtype::kI32: return DequantiseIntegers<std::int32_t>(step, numbers, elements);
    case Dtype::kI64: break;  // no quantiser applies to it
    case Dtype::kF16:
    case Dtype::kBf16:
    case Dtype::kF32:
    case Dtype::kF64: return DequantiseFloats(quantiser, dtype, numbers, elements);
  }
  FOREBAY_CHECK(false);
}

template void Dequantise(const Quantiser&, Dtype, std::span<const std::int32_t>, std::byte*);
template void Dequantise(const Quantiser&, Dtype, std::span<const std::int64_t>, std::byte*);

}  // namespace forebay::compress
