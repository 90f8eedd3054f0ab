// Quantises values so that decoding keeps an error bound: integers by a whole step, floats by a
// linear step, or by steps of their logarithm where the bound is relative to each value. Every
// number is decoded again in the decoder's own arithmetic and checked exactly; a value whose number
// misses the bound is escaped. Gives up where too many values would be, and the chunk is then
// lossless. Called by coded_chunk_encoder.cc.
#include "compress/encode/chunk/value_quantiser.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "compress/encode/chunk/bound_checker.h"
#include "compress/format/chunk/quantiser.h"

namespace forebay::compress {
namespace {

// Numbers stay below these, so that their differences fit the decoder's integers.
constexpr double kNumberMax32 = 0x1p30;
constexpr double kNumberMax64 = 0x1p50;
// More escapes than one value in this many: lossless is the better choice.
constexpr std::size_t kEscapeShareMin = 8;

// Bits of the mantissa, the leading one not counted; 0 of integers.
int MantissaBits(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF16: return 10;
    case Dtype::kBf16: return 7;
    case Dtype::kF32: return 23;
    case Dtype::kF64: return 52;
    default: return 0;
  }
}

// 2 / ((2k + 1) ln 2)
constexpr std::array<double, 11> kLogarithmTerms = {
    2.8853900817779268,  0.9617966939259756,  0.5770780163555853,  0.4121985831111324,
    0.3205988979753252,  0.2623081892525388,  0.22195308321368667, 0.19235933878519512,
    0.16972882833987804, 0.15186263588304877, 0.1373995277037108};

// log2((1 + s) / (1 - s)) for |s| < 0.18. Our own, since libraries differ in the last bit and
// with them the bytes of a pack would.
double LogarithmOfQuotient(double s) {
  const double square = s * s;
  double sum = kLogarithmTerms.back();
  for (std::size_t k = kLogarithmTerms.size() - 1; k-- > 0;) {
    sum = sum * square;
    sum = sum + kLogarithmTerms[k];
  }
  return sum * s;
}

// log2 of a positive, finite value.
double Logarithm(double value) {
  int exponent = 0;
  double mantissa = std::frexp(value, &exponent);  // [0.5, 1)
  if (mantissa < 0.7071067811865476) {
    mantissa *= 2;
    --exponent;
  }
  return exponent + LogarithmOfQuotient((mantissa - 1) / (mantissa + 1));
}

// A chunk's values on their way to numbers.
class ValueQuantiser {
 public:
  ValueQuantiser(const ChunkShape& shape, std::span<const std::byte> raw, const ErrorBound& bound,
                 std::span<const std::uint8_t> masked)
      : shape_(shape), raw_(raw), bound_(bound), masked_(masked) {}

  std::optional<QuantisedValues> Run() {
    Load();
    resolved_ = ResolveBound(bound_, low_, high_);
    if (!(resolved_ > 0) || !std::isfinite(resolved_) || !ChooseQuantiser()) return std::nullopt;
    result_.numbers.assign(values_.size(), 0);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      // Such values keep number 0, and Verify escapes them.
      if (valid_[i] == 0 || std::fabs(values_[i]) > reach_) continue;
      result_.numbers[i] = NumberOf(values_[i]);
    }
    Verify();
    const auto escapes = static_cast<std::size_t>(
        std::count(result_.escaped.begin(), result_.escaped.end(), std::uint8_t{1}));
    if (escapes > values_.size() / kEscapeShareMin) return std::nullopt;
    return std::move(result_);
  }

 private:
  void Load() {
    const std::size_t count = shape_.elements(), bytes = shape_.element_bytes();
    values_.resize(count);
    valid_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, raw_.data() + i * bytes, bytes);
      values_[i] = ValueOfElement(shape_.dtype, bits);
      valid_[i] = masked_[i] == 0 && IsValidValue(shape_.dtype, bits, shape_.fill_bits) ? 1 : 0;
      if (valid_[i] == 0) continue;
      low_ = std::min(low_, values_[i]);
      high_ = std::max(high_, values_[i]);
      const double magnitude = std::fabs(values_[i]);
      if (magnitude > 0) smallest_ = std::min(smallest_, magnitude);
    }
    largest_ = std::max(std::fabs(low_), std::fabs(high_));
  }

  // Chooses kind and step of the quantiser from the bound. False if quantising cannot pay.
  bool ChooseQuantiser() {
    if (!(high_ >= low_)) return false;  // no valid value
    const int mantissa_bits = MantissaBits(shape_.dtype);
    Quantiser& quantiser = result_.quantiser;
    const double number_max = shape_.element_bytes() == 8 ? kNumberMax64 : kNumberMax32;
    if (mantissa_bits == 0) {
      // A step of 2n + 1 keeps integers within n. i64 stays lossless, because doubles cannot hold
      // all of its values.
      const double half = std::floor(resolved_);
      if (shape_.dtype == Dtype::kI64 || half < 1 || half >= 0x1p30) return false;
      quantiser.kind = QuantiserKind::kInteger;
      quantiser.integer_step = 2 * static_cast<std::uint64_t>(half) + 1;
      return true;
    }
    if (bound_.mode == BoundMode::kPointwise) return ChooseLogarithm(mantissa_bits);
    // Decoding rounds to the element type, by at most half a unit in the last place of the largest
    // value. With a step that is so much smaller, hardly any value needs an escape. Values so large
    // that less than half of the step would be left, or with too large a number, are escaped: a
    // stray one costs no more than itself.
    reach_ = std::min(std::ldexp(resolved_, mantissa_bits - 1), resolved_ * number_max);
    const double largest = std::min(largest_, reach_);
    const double unit = largest > 0 ? std::ldexp(1, std::ilogb(largest) - mantissa_bits) : 0;
    quantiser.kind = QuantiserKind::kLinear;
    quantiser.linear_step = 2 * resolved_ - unit;
    return quantiser.linear_step > resolved_ && std::isfinite(quantiser.linear_step);
  }

  // A bound relative to each value: steps of the logarithm, from log2(1 + bound) less the rounding.
  bool ChooseLogarithm(int mantissa_bits) {
    if (largest_ == 0) return false;
    const double unit = std::ldexp(1, -mantissa_bits);
    // With a bound of 1 or more zero would be within it for every value. With two units or less,
    // rounding to the element's type would use up most of the bound.
    if (resolved_ >= 1 || resolved_ <= 2 * unit) return false;
    const double slack = resolved_ - unit;
    const double half_step = LogarithmOfQuotient(slack / (2 + slack));  // log2(1 + slack)
    const double step = std::floor(half_step * 2 * 0x1p32);
    if (step < 64) return false;  // PowerOfTwo is not that fine
    Quantiser& quantiser = result_.quantiser;
    quantiser.kind = QuantiserKind::kLogarithm;
    quantiser.integer_step = static_cast<std::uint64_t>(step);
    steps_per_octave_ = 0x1p32 / step;
    // Numbers count from the smallest magnitude, so that they are small and positive.
    const double first = std::floor(Logarithm(smallest_) * steps_per_octave_ + 0.5);
    origin_ = static_cast<std::int64_t>(first);
    quantiser.origin = static_cast<std::uint64_t>(origin_);
    return (Logarithm(largest_) - Logarithm(smallest_)) * steps_per_octave_ < kNumberMax32;
  }

  // The number whose value is nearest.
  std::int64_t NumberOf(double value) const {
    switch (result_.quantiser.kind) {
      case QuantiserKind::kInteger: {
        const auto step = static_cast<std::int64_t>(result_.quantiser.integer_step);
        const std::int64_t shifted = static_cast<std::int64_t>(value) + step / 2;
        // Division in C++ rounds towards zero, so negative numbers are turned round to get the
        // floor.
        return shifted >= 0 ? shifted / step : -((step - 1 - shifted) / step);
      }
      case QuantiserKind::kLogarithm: {
        if (value == 0) return 0;
        const double steps = std::floor(Logarithm(std::fabs(value)) * steps_per_octave_ + 0.5);
        const std::int64_t magnitude =
            std::max<std::int64_t>(static_cast<std::int64_t>(steps) - origin_, 0) + 1;
        return value < 0 ? -magnitude : magnitude;
      }
      default: break;
    }
    return static_cast<std::int64_t>(std::floor(value / result_.quantiser.linear_step + 0.5));
  }

  // Decodes every number as a reader will, and escapes what lies beyond the bound.
  void Verify() {
    constexpr std::size_t kBlock = 1024;
    const std::size_t bytes = shape_.element_bytes();
    result_.escaped.assign(values_.size(), 0);
    std::array<std::byte, kBlock * 8> decoded;
    for (std::size_t begin = 0; begin < values_.size(); begin += kBlock) {
      const std::size_t count = std::min(kBlock, values_.size() - begin);
      DecodeNumbers(begin, count, decoded.data());
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, decoded.data() + i * bytes, bytes);
        const double value = ValueOfElement(shape_.dtype, bits);
        const std::size_t at = begin + i;
        const bool kept = valid_[at] != 0 &&
                          (bound_.mode == BoundMode::kPointwise
                               ? IsWithinRelative(values_[at], value, resolved_)
                               : IsWithin(values_[at], value, resolved_));
        if (!kept && masked_[at] == 0) {
          result_.escaped[at] = 1;
          result_.numbers[at] = 0;
        }
      }
    }
  }

  // Decodes a block of numbers exactly as a reader will.
  void DecodeNumbers(std::size_t begin, std::size_t count, std::byte* decoded) const {
    const std::span numbers(result_.numbers.data() + begin, count);
    if (shape_.element_bytes() == 8) {
      Dequantise<std::int64_t>(result_.quantiser, shape_.dtype, numbers, decoded);
      return;
    }
    std::vector<std::int32_t> narrow(count);
    std::transform(numbers.begin(), numbers.end(), narrow.begin(),
                   [](std::int64_t number) { return static_cast<std::int32_t>(number); });
    Dequantise<std::int32_t>(result_.quantiser, shape_.dtype, narrow, decoded);
  }

  const ChunkShape& shape_;
  const std::span<const std::byte> raw_;
  const ErrorBound& bound_;
  const std::span<const std::uint8_t> masked_;
  double resolved_ = 0, low_ = HUGE_VAL, high_ = -HUGE_VAL;
  double smallest_ = HUGE_VAL, largest_ = 0;  // magnitudes
  double reach_ = HUGE_VAL;                   // magnitudes beyond are escaped
  double steps_per_octave_ = 0;
  std::int64_t origin_ = 0;
  std::vector<double> values_;
  std::vector<std::uint8_t> valid_;
  QuantisedValues result_;
};

}  // namespace

std::optional<QuantisedValues> QuantiseValues(const ChunkShape& shape,
                                              std::span<const std::byte> raw,
                                              const ErrorBound& bound,
                                              std::span<const std::uint8_t> masked) {
  return ValueQuantiser(shape, raw, bound, masked).Run();
}

}  // namespace forebay::compress
