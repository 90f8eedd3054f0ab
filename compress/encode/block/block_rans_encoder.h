// Encodes planes for the block-rANS decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/plane/plane_shape.h"

namespace forebay::compress {

// kRefined takes twice as long and finds about one part in a hundred.
enum class BlockRansEffort : std::uint8_t { kOnce, kRefined };

// The body of block-rANS planes, kind byte left out; `samples` as EncodePlanes takes them.
std::vector<std::byte> EncodeBlockRans(const PlaneShape& shape, std::span<const std::byte> samples,
                                       BlockRansEffort effort = BlockRansEffort::kOnce);

}  // namespace forebay::compress
