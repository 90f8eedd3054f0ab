// Makes the codes of a chunk dense: offset, shift and dictionary (docs/pack_chunk.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"

namespace forebay::compress {

struct CodeTable {
  std::uint64_t offset = 0;
  std::uint8_t shift = 0;
  std::uint32_t bits = 0;              // of the codes that are left
  std::uint32_t dictionary_count = 0;  // 0: no dictionary
  std::vector<std::byte> dictionary;   // as its stream has it
};

// Replaces `codes`, of `width` bits, by dense ones: subtracts the smallest, drops low bits that are
// never set, and replaces codes by their rank among the values that occur if that lowers the
// estimated size. Codes that fit one plane without a dictionary get one of the same width only if
// it saves one part in `share_min`; 0: if it saves anything.
CodeTable ChooseCodeTable(const ChunkGeometry& geometry, std::size_t width,
                          std::size_t share_min, std::span<std::uint64_t> codes);

}  // namespace forebay::compress
