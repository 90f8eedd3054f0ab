// The lossy stage: replaces values by integers from which decoding keeps an error bound.
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

// Quantises the values of `raw` that are valid and not `masked`, so that Dequantise gives values
// within `bound`; every number has been checked in the arithmetic of decoding. Elements that are
// neither valid nor masked are escaped. Returns nothing if quantising does not pay, because the
// bound is too tight, the range too wide or the type unsuitable; the chunk is then coded without
// loss.
std::optional<QuantisedValues> QuantiseValues(const ChunkShape& shape,
                                              std::span<const std::byte> raw,
                                              const ErrorBound& bound,
                                              std::span<const std::uint8_t> masked);

}  // namespace forebay::compress
