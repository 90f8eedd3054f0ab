// Decodes masks from run lengths (docs/pack_chunk.md, section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"

namespace forebay::compress {

// Expands run lengths (varints: unset, set, unset ...) to the first mask.size() of `elements` bytes
// of 0 or 1. With a `period` other than 0, each element is then flipped if the element `period`
// before it is set. Errors: kDataLoss for runs that do not end exactly at `elements`.
Status ExpandRuns(std::span<const std::byte> runs, std::size_t elements, std::size_t period,
                  std::span<std::uint8_t> mask);

}  // namespace forebay::compress
