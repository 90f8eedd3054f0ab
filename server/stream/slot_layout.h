// How fields lie in a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::stream {

inline constexpr std::uint64_t kRowAlignment = 64;   // of a field within a slot: one cache line
inline constexpr std::uint64_t kPackAlignment = 16;  // of a variable-size value within it

// Field after field; of fixed fields row after row. Constants take nothing.
struct SlotLayout {
  std::vector<std::uint64_t> begins;     // of each field
  std::vector<std::uint64_t> row_bytes;  // of each field; 0 where values are of variable size
  std::uint64_t total_bytes = 0;
};

// Of a batch of so many rows. `variable_bytes` [field]: what all values of a variable field
// take, each padded to kPackAlignment; empty where every field is fixed. kOutOfRange beyond
// limits::kSlotBytesMax.
Result<SlotLayout> LayOutRows(std::span<const FieldSpec> fields, std::size_t rows,
                              std::span<const std::uint64_t> variable_bytes = {});

}  // namespace forebay::stream
