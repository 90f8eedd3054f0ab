// Statistics as packs of version 1 have them: sums of values and of their squares. They are read
// and verified; nothing writes them any more. field_statistics.h has those of later versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/pack/field_statistics.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Values are as of FieldStatistics, but that infinite ones are valid, and not counted apart.
struct FieldSums {
  std::uint64_t values = 0, valid = 0, zeros = 0, nans = 0;
  std::uint64_t minimum_bits = 0, maximum_bits = 0;
  // Of the valid ones, in f64, in the order that the document says.
  double sum = 0, squares = 0;

  friend bool operator==(const FieldSums&, const FieldSums&) = default;
};

// Adds a chunk, chunk by chunk in the index's order: its head, and its decoded bytes.
void AddChunkSums(const PackField& field, const ChunkHead& head,
                  std::span<const std::byte> decoded, FieldSums& sums);

// As good as sums allow: the deviation is wrong where it is small beside the mean, and NaN, as the
// mean is, where an infinite value was among them.
FieldStatistics StatisticsOfSums(const FieldSums& sums);

// A statistics record's payload, and back. Errors as of ReadStatistics.
std::vector<std::byte> WriteFieldSums(const std::vector<FieldSums>& fields);
Result<std::vector<FieldSums>> ReadFieldSums(const PackSchema& schema,
                                             std::span<const std::byte> payload);

}  // namespace forebay::compress
