#include "compress/format/field_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "compress/format/element_code.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kBytesPerField = 64;

bool IsReal(const PackField& field) { return OrderOf(field.dtype) == CodeOrder::kFloat; }

double FromHalf(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

template <typename Bits>
Bits Load(std::span<const std::byte> bytes, std::size_t index) {
  Bits value = 0;
  for (std::size_t i = 0; i < sizeof(Bits); ++i) {
    value = static_cast<Bits>(value | static_cast<Bits>(std::to_integer<Bits>(
                                          bytes[index * sizeof(Bits) + i]) << (8 * i)));
  }
  return value;
}

// Takes values one after the other; Value is std::int64_t or double.
template <typename Value>
class Collector {
 public:
  void Take(Value value) {
    ++found_.valid;
    if (value == Value{0}) ++found_.zeros;
    // The first of equal ones stays: -0.0 and 0.0 are equal.
    if (found_.valid == 1 || value < minimum_) minimum_ = value;
    if (found_.valid == 1 || value > maximum_) maximum_ = value;
    const auto real = static_cast<double>(value);
    found_.sum += real;
    found_.squares += real * real;
  }
  void TakeNan() { ++found_.nans; }

  FieldStatistics Finish(std::uint64_t values) {
    found_.values = values;
    found_.minimum_bits = std::bit_cast<std::uint64_t>(minimum_);
    found_.maximum_bits = std::bit_cast<std::uint64_t>(maximum_);
    return found_;
  }

 private:
  FieldStatistics found_;
  Value minimum_ = 0, maximum_ = 0;
};

// Of elements as unsigned integers of their width; convert(bits) is a std::int64_t or a double.
template <typename Bits, typename Convert>
FieldStatistics Measure(const PackField& field, std::span<const std::byte> bytes,
                        Convert convert) {
  using Value = decltype(convert(Bits{0}));
  Collector<Value> collector;
  const std::size_t count = bytes.size() / sizeof(Bits);
  const bool has_fill = field.fill_bits.has_value();
  const auto fill = static_cast<Bits>(field.fill_bits.value_or(0));
  for (std::size_t i = 0; i < count; ++i) {
    const Bits bits = Load<Bits>(bytes, i);
    const Value value = convert(bits);
    if constexpr (std::is_floating_point_v<Value>) {
      if (std::isnan(value)) {
        collector.TakeNan();
        continue;
      }
    }
    if (has_fill && bits == fill) continue;
    collector.Take(value);
  }
  return collector.Finish(count);
}

// Of 8 and 16 bits without a fill value: no sum of a chunk leaves 2^53, so that integers give the
// bits that the document's order of f64 additions would.
template <typename Element>
FieldStatistics MeasureNarrow(std::span<const std::byte> bytes) {
  using Bits = std::make_unsigned_t<Element>;
  const std::size_t count = bytes.size() / sizeof(Element);
  std::int64_t sum = 0, squares = 0, zeros = 0;
  Element minimum = std::numeric_limits<Element>::max();
  Element maximum = std::numeric_limits<Element>::min();
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<Element>(Load<Bits>(bytes, i));
    sum += value;
    squares += std::int64_t{value} * value;
    zeros += value == 0 ? 1 : 0;
    minimum = std::min(minimum, value);
    maximum = std::max(maximum, value);
  }
  if (count == 0) return {};
  return {.values = count,
          .valid = count,
          .zeros = static_cast<std::uint64_t>(zeros),
          .minimum_bits = std::bit_cast<std::uint64_t>(std::int64_t{minimum}),
          .maximum_bits = std::bit_cast<std::uint64_t>(std::int64_t{maximum}),
          .sum = static_cast<double>(sum),
          .squares = static_cast<double>(squares)};
}

template <typename Element>
FieldStatistics MeasureIntegers(const PackField& field, std::span<const std::byte> bytes) {
  using Bits = std::make_unsigned_t<Element>;
  if constexpr (sizeof(Element) <= 2) {
    if (!field.fill_bits.has_value()) return MeasureNarrow<Element>(bytes);
  }
  return Measure<Bits>(field, bytes, [](Bits bits) {
    return static_cast<std::int64_t>(static_cast<Element>(bits));
  });
}

FieldStatistics MeasureLengths(const ChunkHead& head) {
  Collector<std::int64_t> collector;
  // A string in parts counts where it begins.
  if (head.sample_bytes != 0) {
    if (head.part_offset != 0) return {};
    collector.Take(static_cast<std::int64_t>(head.sample_bytes));
    return collector.Finish(1);
  }
  for (std::uint32_t i = 0; i < head.sample_count; ++i) {
    collector.Take(static_cast<std::int64_t>(head.LengthOf(i)));
  }
  return collector.Finish(head.sample_count);
}

double AsReal(const PackField& field, std::uint64_t bits) {
  return IsReal(field) ? std::bit_cast<double>(bits)
                       : static_cast<double>(std::bit_cast<std::int64_t>(bits));
}

bool Less(const PackField& field, std::uint64_t a, std::uint64_t b) {
  return IsReal(field) ? std::bit_cast<double>(a) < std::bit_cast<double>(b)
                       : std::bit_cast<std::int64_t>(a) < std::bit_cast<std::int64_t>(b);
}

}  // namespace

double MinimumOf(const PackField& field, const FieldStatistics& statistics) {
  return AsReal(field, statistics.minimum_bits);
}

double MaximumOf(const PackField& field, const FieldStatistics& statistics) {
  return AsReal(field, statistics.maximum_bits);
}

double MeanOf(const FieldStatistics& statistics) {
  return statistics.valid == 0 ? 0 : statistics.sum / static_cast<double>(statistics.valid);
}

double DeviationOf(const FieldStatistics& statistics) {
  if (statistics.valid == 0) return 0;
  const double mean = MeanOf(statistics);
  const double square = statistics.squares / static_cast<double>(statistics.valid);
  return std::sqrt(std::max(0.0, square - mean * mean));
}

FieldStatistics MeasureChunk(const PackField& field, const ChunkHead& head,
                             std::span<const std::byte> decoded) {
  if (field.variable()) return MeasureLengths(head);
  switch (field.dtype) {
    case Dtype::kBytes:
    case Dtype::kU8: return MeasureIntegers<std::uint8_t>(field, decoded);
    case Dtype::kI8: return MeasureIntegers<std::int8_t>(field, decoded);
    case Dtype::kU16: return MeasureIntegers<std::uint16_t>(field, decoded);
    case Dtype::kI16: return MeasureIntegers<std::int16_t>(field, decoded);
    case Dtype::kI32: return MeasureIntegers<std::int32_t>(field, decoded);
    case Dtype::kI64: return MeasureIntegers<std::int64_t>(field, decoded);
    case Dtype::kF16: return Measure<std::uint16_t>(field, decoded, FromHalf);
    case Dtype::kBf16:
      return Measure<std::uint16_t>(field, decoded, [](std::uint16_t bits) {
        return static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16));
      });
    case Dtype::kF32:
      return Measure<std::uint32_t>(field, decoded, [](std::uint32_t bits) {
        return static_cast<double>(std::bit_cast<float>(bits));
      });
    case Dtype::kF64:
      return Measure<std::uint64_t>(
          field, decoded, [](std::uint64_t bits) { return std::bit_cast<double>(bits); });
  }
  return {};
}

void AddStatistics(const PackField& field, const FieldStatistics& more, FieldStatistics& sum) {
  sum.values += more.values;
  sum.nans += more.nans;
  if (more.valid == 0) return;
  if (sum.valid == 0 || Less(field, more.minimum_bits, sum.minimum_bits)) {
    sum.minimum_bits = more.minimum_bits;
  }
  if (sum.valid == 0 || Less(field, sum.maximum_bits, more.maximum_bits)) {
    sum.maximum_bits = more.maximum_bits;
  }
  sum.valid += more.valid;
  sum.zeros += more.zeros;
  sum.sum += more.sum;
  sum.squares += more.squares;
}

std::vector<std::byte> WriteStatistics(const std::vector<FieldStatistics>& fields) {
  ByteWriter writer;
  for (const FieldStatistics& field : fields) {
    writer.Le(field.values);
    writer.Le(field.valid);
    writer.Le(field.zeros);
    writer.Le(field.nans);
    writer.Le(field.minimum_bits);
    writer.Le(field.maximum_bits);
    writer.Le(std::bit_cast<std::uint64_t>(field.sum));
    writer.Le(std::bit_cast<std::uint64_t>(field.squares));
  }
  return writer.Release();
}

Result<std::vector<FieldStatistics>> ReadStatistics(const PackSchema& schema,
                                                    std::span<const std::byte> payload) {
  if (payload.size() != schema.fields.size() * kBytesPerField) {
    return Error(ErrorCode::kDataLoss, "pack: statistics of another number of fields");
  }
  ByteReader reader(payload);
  std::vector<FieldStatistics> fields(schema.fields.size());
  for (FieldStatistics& field : fields) {
    field.values = reader.ReadLe<std::uint64_t>();
    field.valid = reader.ReadLe<std::uint64_t>();
    field.zeros = reader.ReadLe<std::uint64_t>();
    field.nans = reader.ReadLe<std::uint64_t>();
    field.minimum_bits = reader.ReadLe<std::uint64_t>();
    field.maximum_bits = reader.ReadLe<std::uint64_t>();
    field.sum = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
    field.squares = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
    if (field.valid > field.values || field.zeros > field.valid ||
        field.nans > field.values - field.valid) {
      return Error(ErrorCode::kDataLoss, "pack: statistics whose counts exceed one another");
    }
  }
  return fields;
}

}  // namespace forebay::compress
