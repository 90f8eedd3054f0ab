// Masks and lists of places, from their bytes (docs/pack_chunk.md, section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"

namespace forebay::compress {

// Expands run lengths (varints: unset, set, unset ...) to the first mask.size() of `elements`
// bytes of 0 or 1. With a `period` other than 0, each element is then flipped where the one
// `period` before it is set. Errors: kDataLoss for runs that end early or beyond `elements`.
Status ExpandRuns(std::span<const std::byte> runs, std::size_t elements, std::size_t period,
                  std::span<std::uint8_t> mask);

}  // namespace forebay::compress
