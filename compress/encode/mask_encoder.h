// Masks as run lengths (docs/pack_chunk.md, section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace forebay::compress {

struct EncodedRuns {
  std::vector<std::byte> bytes;
  bool temporal = false;
};

// The runs of `mask` (bytes of 0 or 1), or of its difference to itself `period` elements before
// where those are fewer. `period` 0: no frame before.
EncodedRuns EncodeRuns(std::span<const std::uint8_t> mask, std::size_t period);

// The places of `flags`' ones as gaps.
std::vector<std::byte> EncodePlaces(std::span<const std::uint8_t> flags);

}  // namespace forebay::compress
