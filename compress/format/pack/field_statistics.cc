// Statistics of a field (docs/pack.md): counts, extremes, mean and moment of each chunk in one
// pass, merged pairwise (T. Chan, G. Golub and R. LeVeque 1979). Every operation is an IEEE 754
// double, none fused, in an order that the format fixes, so that the same values give the same bits
// with every number of threads. Integers of up to 16 bits are summed exactly instead.
#include "compress/format/pack/field_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "compress/format/chunk/element_code.h"
#include "compress/format/damaged.h"
#include "compress/format/pack/element_values.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

// Ten words of 8 bytes, in the order of WriteStatistics.
constexpr std::size_t kStatisticsBytes = 80;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool IsReal(const PackField& field) { return OrderOf(field.dtype) == CodeOrder::kFloat; }

double Difference(double value, double first) { return value - first; }

// A double cannot tell large integers from their neighbours, so the difference is taken as an
// integer and rounded once.
double Difference(std::int64_t value, std::int64_t first) {
  std::int64_t difference = 0;
  if (!__builtin_sub_overflow(value, first, &difference)) return static_cast<double>(difference);
  // The difference fits 64 bits without a sign. It is taken so that it is positive, and negated as
  // a double.
  const auto high = static_cast<std::uint64_t>(value), low = static_cast<std::uint64_t>(first);
  return value > first ? static_cast<double>(high - low) : -static_cast<double>(low - high);
}

// Takes a chunk's values one after the other. Differences are taken from the first valid value. It
// is one of the values, so the squares exceed the moment by no more than a factor of their number.
class StatisticsCollector {
 public:
  void Nan() {
    ++found_.values;
    ++found_.nans;
  }
  void Fill() { ++found_.values; }
  template <typename T>
  void Value(T value) {
    ++found_.values;
    if constexpr (std::is_floating_point_v<T>) {
      // Infinities are counted apart: one of them would make mean and moment useless.
      if (std::isinf(value)) {
        ++(value > 0 ? found_.positive_infinities : found_.negative_infinities);
        return;
      }
    }
    if (found_.valid == 0) {
      found_.minimum_bits = found_.maximum_bits = std::bit_cast<std::uint64_t>(value);
      first_bits_ = found_.minimum_bits;
      first_ = static_cast<double>(value);
    }
    ++found_.valid;
    if (value == T{0}) ++found_.zeros;
    // The first of equal ones stays: -0.0 and 0.0 are equal.
    if (value < std::bit_cast<T>(found_.minimum_bits)) {
      found_.minimum_bits = std::bit_cast<std::uint64_t>(value);
    }
    if (value > std::bit_cast<T>(found_.maximum_bits)) {
      found_.maximum_bits = std::bit_cast<std::uint64_t>(value);
    }
    const double difference = Difference(value, std::bit_cast<T>(first_bits_));
    differences_ += difference;
    squares_ += difference * difference;
  }

  FieldStatistics Finish();

 private:
  FieldStatistics found_;
  std::uint64_t first_bits_ = 0;  // as a minimum's
  double first_ = 0, differences_ = 0, squares_ = 0;
};

// Needs found.valid > 0. Rounding may bring the moment slightly below zero, and a reader refuses
// that.
void SetMoment(double first, double differences, double squares, FieldStatistics& found) {
  const auto count = static_cast<double>(found.valid);
  found.mean = first + differences / count;
  const double moment = squares - differences * differences / count;
  found.moment = moment < 0 ? 0 : moment;
}

FieldStatistics StatisticsCollector::Finish() {
  if (found_.valid > 0) SetMoment(first_, differences_, squares_, found_);
  return found_;
}

// Measures elements of 8 and 16 bits without a fill value. No sum over a chunk leaves 2^53, where
// every integer is a double, so integer sums give the bits that the document's order of f64
// operations would, in one pass and without a division or a branch per value.
template <typename Element>
FieldStatistics MeasureNarrow(std::span<const std::byte> bytes) {
  using Bits = std::make_unsigned_t<Element>;
  const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(Element));
  if (count == 0) return {};
  std::int64_t sum = 0, squares = 0, zeros = 0;
  Element minimum = std::numeric_limits<Element>::max();
  Element maximum = std::numeric_limits<Element>::min();
  // A chunk has at most 2^21 elements of 16 bits, and a square is at most 2^32, so no sum exceeds
  // 2^53.
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value =
        static_cast<Element>(LoadElement<Bits>(bytes, static_cast<std::size_t>(i)));
    sum += value;
    squares += std::int64_t{value} * value;
    zeros += value == 0 ? 1 : 0;
    minimum = std::min(minimum, value);
    maximum = std::max(maximum, value);
  }
  const auto first = static_cast<std::int64_t>(static_cast<Element>(LoadElement<Bits>(bytes, 0)));
  FieldStatistics found{.values = static_cast<std::uint64_t>(count),
                        .valid = static_cast<std::uint64_t>(count),
                        .zeros = static_cast<std::uint64_t>(zeros),
                        .minimum_bits = std::bit_cast<std::uint64_t>(std::int64_t{minimum}),
                        .maximum_bits = std::bit_cast<std::uint64_t>(std::int64_t{maximum})};
  // The sums of (x - first) and (x - first)^2, multiplied out, so that the loop above needs no
  // subtraction.
  SetMoment(static_cast<double>(first), static_cast<double>(sum - first * count),
            static_cast<double>(squares - 2 * first * sum + first * first * count), found);
  return found;
}

double AsReal(const PackField& field, std::uint64_t bits) {
  return IsReal(field) ? std::bit_cast<double>(bits)
                       : static_cast<double>(std::bit_cast<std::int64_t>(bits));
}

// Writes one pattern for all NaNs, because their signs differ between processors.
std::uint64_t BitsOf(double value) {
  return std::bit_cast<std::uint64_t>(std::isnan(value) ? kNan : value);
}

}  // namespace

double MinimumOf(const PackField& field, const FieldStatistics& statistics) {
  return AsReal(field, statistics.minimum_bits);
}

double MaximumOf(const PackField& field, const FieldStatistics& statistics) {
  return AsReal(field, statistics.maximum_bits);
}

double DeviationOf(const FieldStatistics& statistics) {
  if (statistics.valid == 0) return 0;
  return std::sqrt(statistics.moment / static_cast<double>(statistics.valid));
}

bool IsLess(const PackField& field, std::uint64_t a, std::uint64_t b) {
  return IsReal(field) ? std::bit_cast<double>(a) < std::bit_cast<double>(b)
                       : std::bit_cast<std::int64_t>(a) < std::bit_cast<std::int64_t>(b);
}

FieldStatistics MeasureChunk(const PackField& field, const ChunkHead& head,
                             std::span<const std::byte> decoded) {
  if (!field.variable() && !field.fill_bits.has_value()) {
    switch (field.dtype) {
      case Dtype::kBytes:
      case Dtype::kU8: return MeasureNarrow<std::uint8_t>(decoded);
      case Dtype::kI8: return MeasureNarrow<std::int8_t>(decoded);
      case Dtype::kU16: return MeasureNarrow<std::uint16_t>(decoded);
      case Dtype::kI16: return MeasureNarrow<std::int16_t>(decoded);
      default: break;
    }
  }
  StatisticsCollector collector;
  VisitValues(field, head, decoded, collector);
  return collector.Finish();
}

FieldStatistics Merge(const PackField& field, const FieldStatistics& earlier,
                      const FieldStatistics& later) {
  FieldStatistics both = earlier;
  both.values += later.values;
  both.nans += later.nans;
  both.positive_infinities += later.positive_infinities;
  both.negative_infinities += later.negative_infinities;
  // A side without valid values has no extremes and no mean; it must not reach the formulas below.
  if (later.valid == 0) return both;
  both.valid += later.valid;
  both.zeros += later.zeros;
  if (earlier.valid == 0 || IsLess(field, later.minimum_bits, earlier.minimum_bits)) {
    both.minimum_bits = later.minimum_bits;
  }
  if (earlier.valid == 0 || IsLess(field, earlier.maximum_bits, later.maximum_bits)) {
    both.maximum_bits = later.maximum_bits;
  }
  if (earlier.valid == 0) {
    both.mean = later.mean;
    both.moment = later.moment;
    return both;
  }
  // The parallel form of the variance by Chan, Golub and LeVeque (1979), with these operations in
  // this order.
  const double share = static_cast<double>(later.valid) / static_cast<double>(both.valid);
  const double difference = later.mean - earlier.mean;
  both.mean = earlier.mean + difference * share;
  both.moment = earlier.moment + later.moment +
                difference * difference * (static_cast<double>(earlier.valid) * share);
  return both;
}

// Runs of 1, 2, 4, ... chunks are merged as soon as two of a size are complete, as a binary counter
// carries.
void StatisticsMerger::Take(const PackField& field, const FieldStatistics& chunk) {
  runs_.push_back(chunk);
  ++taken_;
  // The order of the merges depends on the chunks' order only, so the rounding is the same with
  // every number of threads.
  for (std::uint64_t number = taken_; number % 2 == 0; number /= 2) {
    const FieldStatistics later = runs_.back();
    runs_.pop_back();
    runs_.back() = Merge(field, runs_.back(), later);
  }
}

FieldStatistics StatisticsMerger::Merged(const PackField& field) const {
  FieldStatistics merged;
  // From the shortest run, which is the latest, to the longest. `merged` is always the later side.
  for (std::size_t i = runs_.size(); i-- > 0;) {
    merged = i + 1 == runs_.size() ? runs_[i] : Merge(field, runs_[i], merged);
  }
  return merged;
}

std::vector<std::byte> WriteStatistics(const std::vector<FieldStatistics>& fields) {
  ByteWriter writer;
  for (const FieldStatistics& field : fields) {
    writer.Le(field.values);
    writer.Le(field.valid);
    writer.Le(field.zeros);
    writer.Le(field.nans);
    writer.Le(field.positive_infinities);
    writer.Le(field.negative_infinities);
    writer.Le(field.minimum_bits);
    writer.Le(field.maximum_bits);
    writer.Le(BitsOf(field.mean));
    writer.Le(BitsOf(field.moment));
  }
  return writer.Release();
}

Result<std::vector<FieldStatistics>> ReadStatistics(const PackSchema& schema,
                                                    std::span<const std::byte> payload) {
  if (payload.size() != schema.fields.size() * kStatisticsBytes) {
    return Damaged("pack", "the statistics are not of all fields");
  }
  ByteReader reader(payload);
  std::vector<FieldStatistics> fields(schema.fields.size());
  for (FieldStatistics& field : fields) {
    field.values = reader.ReadLe<std::uint64_t>();
    std::uint64_t left = field.values;  // that no count has taken yet
    bool sound = true;
    // Subtracts each count from what is left instead of adding them up: a sum of hostile counts
    // could overflow.
    const auto take = [&](std::uint64_t& count) {
      count = reader.ReadLe<std::uint64_t>();
      sound = sound && count <= left;
      left -= sound ? count : 0;
    };
    take(field.valid);
    field.zeros = reader.ReadLe<std::uint64_t>();
    take(field.nans);
    take(field.positive_infinities);
    take(field.negative_infinities);
    field.minimum_bits = reader.ReadLe<std::uint64_t>();
    field.maximum_bits = reader.ReadLe<std::uint64_t>();
    field.mean = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
    field.moment = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
    if (!sound || field.zeros > field.valid || field.moment < 0) {
      return Damaged("pack", "the counts of the statistics contradict each other");
    }
  }
  return fields;
}

}  // namespace forebay::compress
