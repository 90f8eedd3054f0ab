// Statistics of packs of version 1: sums and sums of squares, chunk by chunk. Nothing writes them
// any more; packs of version 1 are read, and their sums become mean and moment. Compiled with
// -ffp-contract=off.
#include "compress/format/pack/field_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compress/format/damaged.h"
#include "compress/format/pack/element_values.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kSumsBytes = 64;

// The sums of one chunk. Each chunk's are added up from 0 on and then added to the field's, because
// the order of floating-point additions is part of version 1.
class SumsCollector {
 public:
  void Nan() {
    ++found_.values;
    ++found_.nans;
  }
  void Fill() { ++found_.values; }
  template <typename T>
  void Value(T value) {
    ++found_.values;
    ++found_.valid;
    if (value == T{0}) ++found_.zeros;
    // The first of equal ones stays: -0.0 and 0.0 are equal.
    if (found_.valid == 1 || value < std::bit_cast<T>(found_.minimum_bits)) {
      found_.minimum_bits = std::bit_cast<std::uint64_t>(value);
    }
    if (found_.valid == 1 || value > std::bit_cast<T>(found_.maximum_bits)) {
      found_.maximum_bits = std::bit_cast<std::uint64_t>(value);
    }
    const auto real = static_cast<double>(value);
    found_.sum += real;
    // Squares of large values with small differences lose the differences. That is why version 2
    // has means and moments.
    found_.squares += real * real;
  }

  const FieldSums& found() const { return found_; }

 private:
  FieldSums found_;
};

}  // namespace

void AddChunkSums(const PackField& field, const ChunkHead& head,
                  std::span<const std::byte> decoded, FieldSums& sums) {
  SumsCollector collector;
  VisitValues(field, head, decoded, collector);
  const FieldSums& more = collector.found();
  sums.values += more.values;
  sums.nans += more.nans;
  // A chunk without valid values has no extremes to compare.
  if (more.valid == 0) return;
  if (sums.valid == 0 || IsLess(field, more.minimum_bits, sums.minimum_bits)) {
    sums.minimum_bits = more.minimum_bits;
  }
  if (sums.valid == 0 || IsLess(field, sums.maximum_bits, more.maximum_bits)) {
    sums.maximum_bits = more.maximum_bits;
  }
  sums.valid += more.valid;
  sums.zeros += more.zeros;
  // Chunks are added in the order of the index: another order would give other bits than the file
  // has.
  sums.sum += more.sum;
  sums.squares += more.squares;
}

FieldStatistics StatisticsOfSums(const FieldSums& sums) {
  FieldStatistics statistics{.values = sums.values,
                             .valid = sums.valid,
                             .zeros = sums.zeros,
                             .nans = sums.nans,
                             .minimum_bits = sums.minimum_bits,
                             .maximum_bits = sums.maximum_bits};
  if (sums.valid == 0) return statistics;
  // Sums that overflowed say nothing about the mean.
  if (!std::isfinite(sums.sum) || !std::isfinite(sums.squares)) {
    statistics.mean = statistics.moment = std::numeric_limits<double>::quiet_NaN();
    return statistics;
  }
  statistics.mean = sums.sum / static_cast<double>(sums.valid);
  // The sum of squared distances to the mean: sum(x^2) - sum(x)^2 / n. Rounding can bring the
  // difference below zero.
  statistics.moment = std::max(0.0, sums.squares - sums.sum * statistics.mean);
  return statistics;
}

std::vector<std::byte> WriteFieldSums(const std::vector<FieldSums>& fields) {
  ByteWriter writer;
  for (const FieldSums& field : fields) {
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

Result<std::vector<FieldSums>> ReadFieldSums(const PackSchema& schema,
                                             std::span<const std::byte> payload) {
  // The exact size makes every read below succeed, so the loop need not ask reader.ok().
  if (payload.size() != schema.fields.size() * kSumsBytes) {
    return Damaged("pack", "the statistics are not of all fields");
  }
  ByteReader reader(payload);
  std::vector<FieldSums> fields(schema.fields.size());
  for (FieldSums& field : fields) {
    field.values = reader.ReadLe<std::uint64_t>();
    field.valid = reader.ReadLe<std::uint64_t>();
    field.zeros = reader.ReadLe<std::uint64_t>();
    field.nans = reader.ReadLe<std::uint64_t>();
    field.minimum_bits = reader.ReadLe<std::uint64_t>();
    field.maximum_bits = reader.ReadLe<std::uint64_t>();
    field.sum = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
    field.squares = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
    // Fill values make up the rest, so the counts need not add up to the number of values.
    if (field.valid > field.values || field.zeros > field.valid ||
        field.nans > field.values - field.valid) {
      return Damaged("pack", "the counts of the statistics contradict each other");
    }
  }
  return fields;
}

}  // namespace forebay::compress
