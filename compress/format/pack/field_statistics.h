// Statistics of a field's values, chunk by chunk (docs/pack.md): what a record of type 5 holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Of the values that a reader gets. Values are a fixed field's elements, or the lengths of a
// variable field's byte strings. Valid are those that are finite and not the fill value.
struct FieldStatistics {
  std::uint64_t values = 0, valid = 0;
  std::uint64_t zeros = 0;  // of the valid ones
  std::uint64_t nans = 0;
  std::uint64_t positive_infinities = 0, negative_infinities = 0;
  // Of the valid ones: the bits of an i64, or of an f64 where the field is floating point; 0 where
  // there is none.
  std::uint64_t minimum_bits = 0, maximum_bits = 0;
  // Of the valid ones: the mean, and the sum of the squares of differences from it; 0 where there
  // is none. Infinite or NaN where they, or a difference, square or sum on the way, are beyond f64.
  double mean = 0, moment = 0;

  friend bool operator==(const FieldStatistics&, const FieldStatistics&) = default;
};

// For people: as f64; the standard deviation is that of the valid values, 0 of none.
double MinimumOf(const PackField& field, const FieldStatistics& statistics);
double MaximumOf(const PackField& field, const FieldStatistics& statistics);
double DeviationOf(const FieldStatistics& statistics);

// Whether one is the smaller, of a minimum's or a maximum's bits.
bool IsLess(const PackField& field, std::uint64_t a, std::uint64_t b);

// Of one chunk: its head, and its decoded bytes.
FieldStatistics MeasureChunk(const PackField& field, const ChunkHead& head,
                             std::span<const std::byte> decoded);

// Of both together, `earlier` being of values that lie before. Means and moments are merged as in
// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances" (1979): no number is subtracted from another that is large beside the difference.
FieldStatistics Merge(const PackField& field, const FieldStatistics& earlier,
                      const FieldStatistics& later);

// Merges the statistics of a field's chunks pairwise, as in that paper: as many chunks with as
// many, so that roundings grow with the logarithm of their number. Not thread-safe.
class StatisticsMerger {
 public:
  // The next chunk's, in the index's order.
  void Take(const PackField& field, const FieldStatistics& chunk);
  // Of all that were taken.
  FieldStatistics Merged(const PackField& field) const;

 private:
  std::uint64_t taken_ = 0;
  // Of runs of chunks, one for each bit that is set in their number; the longest is the first.
  std::vector<FieldStatistics> runs_;
};

// A statistics record's payload, and back. kDataLoss for another number of fields than the
// schema's, for counts that exceed one another, and for a moment below 0.
std::vector<std::byte> WriteStatistics(const std::vector<FieldStatistics>& fields);
Result<std::vector<FieldStatistics>> ReadStatistics(const PackSchema& schema,
                                                    std::span<const std::byte> payload);

}  // namespace forebay::compress
