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

// As FieldStatistics, except that infinite values count as valid and have no counts of their own.
struct FieldSums {
  std::uint64_t values = 0, valid = 0, zeros = 0, nans = 0;
  std::uint64_t minimum_bits = 0, maximum_bits = 0;
  // Sums over the valid values, in f64, in the order of docs/pack.md.
  double sum = 0, squares = 0;

  friend bool operator==(const FieldSums&, const FieldSums&) = default;
};

// Adds a chunk to `sums`. Call it for all chunks in the order of the index.
void AddChunkSums(const PackField& field, const ChunkHead& head,
                  std::span<const std::byte> decoded, FieldSums& sums);

// Statistics as far as sums allow: the deviation is inaccurate if it is small compared with the
// mean. If a value was infinite, mean and deviation are NaN.
FieldStatistics StatisticsOfSums(const FieldSums& sums);

// Writes and reads the payload of a statistics record of version 1. Errors: those of
// ReadStatistics.
std::vector<std::byte> WriteFieldSums(const std::vector<FieldSums>& fields);
Result<std::vector<FieldSums>> ReadFieldSums(const PackSchema& schema,
                                             std::span<const std::byte> payload);

}  // namespace forebay::compress
