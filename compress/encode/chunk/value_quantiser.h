// Lossy front end: values to integers, such that decoding keeps a bound.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/encode/chunk/error_bound.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/chunk/chunk_shape.h"

namespace forebay::compress {

struct QuantisedValues {
  Quantiser quantiser;
  std::vector<std::int64_t> numbers;  // of valid elements that are not escaped; else 0
  std::vector<std::uint8_t> escaped;  // 1: no number keeps the bound; stored as it is
};

// Numbers from which Dequantise makes values within `bound` of those of `raw` that are valid and
// not `masked`; every one has been checked in the arithmetic of decoding. Elements that are
// neither valid nor masked are escaped. Nothing where the bound is so tight, the range so wide or
// the type such that numbers do not pay: then the chunk is lossless.
std::optional<QuantisedValues> QuantiseValues(const ChunkShape& shape,
                                              std::span<const std::byte> raw,
                                              const ErrorBound& bound,
                                              std::span<const std::uint8_t> masked);

}  // namespace forebay::compress
