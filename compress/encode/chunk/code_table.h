// Makes codes dense: offset, shift and dictionary.
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

// Replaces `codes`, of `width` bits, by dense ones: less the smallest, without low bits that are
// never set, and, where the estimated cost falls, by their rank among the values that occur. Codes
// that fit one plane as they are take a rank of as many bytes only where that saves one part in
// `share_min`; 0: any.
CodeTable ChooseCodeTable(const ChunkGeometry& geometry, std::size_t width,
                          std::size_t share_min, std::span<std::uint64_t> codes);

}  // namespace forebay::compress
