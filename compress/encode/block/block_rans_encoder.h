// Encodes planes for the block-rANS decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/plane/plane_shape.h"

namespace forebay::compress {

// kRefined takes twice as long and saves about 1 %.
enum class BlockRansEffort : std::uint8_t { kOnce, kRefined };

// Returns the body of block-rANS planes without its kind byte. `samples` are as for EncodePlanes.
std::vector<std::byte> EncodeBlockRans(const PlaneShape& shape, std::span<const std::byte> samples,
                                       BlockRansEffort effort = BlockRansEffort::kOnce);

}  // namespace forebay::compress
