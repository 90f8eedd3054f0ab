// Statistics of a field's values, chunk by chunk (docs/pack.md): what a record of type 5 holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Statistics of the decoded values of a field: the elements of a fixed field, or the lengths of a
// variable field's byte strings. A value is valid if it is finite and not the fill value.
struct FieldStatistics {
  std::uint64_t values = 0, valid = 0;
  std::uint64_t zeros = 0;  // valid values that are zero
  std::uint64_t nans = 0;
  std::uint64_t positive_infinities = 0, negative_infinities = 0;
  // Extremes of the valid values: the bits of an i64, or of an f64 if the field is floating point;
  // 0 if no value is valid.
  std::uint64_t minimum_bits = 0, maximum_bits = 0;
  // The mean of the valid values, and the sum of the squares of their differences from it; 0 if no
  // value is valid. Infinite or NaN if they, or an intermediate result, do not fit an f64.
  double mean = 0, moment = 0;

  friend bool operator==(const FieldStatistics&, const FieldStatistics&) = default;
};

// Minimum, maximum and standard deviation of the valid values as doubles, for display; 0 if there
// is none.
double MinimumOf(const PackField& field, const FieldStatistics& statistics);
double MaximumOf(const PackField& field, const FieldStatistics& statistics);
double DeviationOf(const FieldStatistics& statistics);

// Whether the value with bits `a` is less than the one with bits `b`, both as in minimum_bits.
bool IsLess(const PackField& field, std::uint64_t a, std::uint64_t b);

// The statistics of one chunk, from its head and its decoded bytes.
FieldStatistics MeasureChunk(const PackField& field, const ChunkHead& head,
                             std::span<const std::byte> decoded);

// The statistics of two runs of values together; `earlier` comes first. Means and moments are
// merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances" (1979), which never subtracts two large numbers whose difference is small.
FieldStatistics Merge(const PackField& field, const FieldStatistics& earlier,
                      const FieldStatistics& later);

// Merges the statistics of a field's chunks pairwise, as in that paper: runs of equally many
// chunks, so that rounding errors grow with the logarithm of their number. Not thread-safe.
class StatisticsMerger {
 public:
  // Adds the next chunk, in the order of the index.
  void Take(const PackField& field, const FieldStatistics& chunk);
  // The statistics of all chunks so far.
  FieldStatistics Merged(const PackField& field) const;

 private:
  std::uint64_t taken_ = 0;
  // Statistics of runs of chunks, one for each bit that is set in taken_; the longest run is first.
  std::vector<FieldStatistics> runs_;
};

// Writes and reads the payload of a statistics record. Errors: kDataLoss for another number of
// fields than the schema's, for counts that contradict each other, and for a moment below 0.
std::vector<std::byte> WriteStatistics(const std::vector<FieldStatistics>& fields);
Result<std::vector<FieldStatistics>> ReadStatistics(const PackSchema& schema,
                                                    std::span<const std::byte> payload);

}  // namespace forebay::compress
