// Statistics of a field's values, chunk by chunk (docs/pack.md): what a record of type 5 holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Of the values that a reader gets. Values are a fixed field's elements, or the lengths of a
// variable field's byte strings. Not valid are NaN and the fill value.
struct FieldStatistics {
  std::uint64_t values = 0, valid = 0;
  std::uint64_t zeros = 0;  // of the valid ones
  std::uint64_t nans = 0;
  // Of the valid ones: the bits of an i64, or of an f64 where the field is floating point; 0 where
  // there is none.
  std::uint64_t minimum_bits = 0, maximum_bits = 0;
  // Of the valid ones, in f64, in the order that the document says.
  double sum = 0, squares = 0;

  friend bool operator==(const FieldStatistics&, const FieldStatistics&) = default;
};

// For people: as f64, and the mean and the standard deviation of the valid values; 0 of none.
double MinimumOf(const PackField& field, const FieldStatistics& statistics);
double MaximumOf(const PackField& field, const FieldStatistics& statistics);
double MeanOf(const FieldStatistics& statistics);
double DeviationOf(const FieldStatistics& statistics);

// Of one chunk: its head, and its decoded bytes.
FieldStatistics MeasureChunk(const PackField& field, const ChunkHead& head,
                             std::span<const std::byte> decoded);

// Adds what comes behind, chunk by chunk in the index's order.
void AddStatistics(const PackField& field, const FieldStatistics& more, FieldStatistics& sum);

// A statistics record's payload, and back. kDataLoss for another number of fields than the
// schema's, and for counts that exceed one another.
std::vector<std::byte> WriteStatistics(const std::vector<FieldStatistics>& fields);
Result<std::vector<FieldStatistics>> ReadStatistics(const PackSchema& schema,
                                                    std::span<const std::byte> payload);

}  // namespace forebay::compress
