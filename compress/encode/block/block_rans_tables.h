// The frequencies with which a class's residuals are coded.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "compress/format/plane/block_rans_format.h"

namespace forebay::compress {

// A class's distribution as the format has it, indexed by token as a byte.
struct BlockRansTable {
  std::uint8_t shift = 0;
  std::uint8_t escape_slots = 1;
  std::array<std::uint8_t, kBlockRansSlots> frequency{}, first{};

  std::uint32_t escape_slots_at() const { return kBlockRansSlots - escape_slots; }
};

// A residual's token in a class of `shift` planes; false where it has none.
inline bool BlockRansTokenOf(std::int32_t residual, std::uint32_t shift, std::uint8_t& token) {
  const std::int32_t value = residual >> shift;
  token = static_cast<std::uint8_t>(value);
  return value >= -128 && value <= 127;
}

using BlockRansCounts = std::array<std::uint32_t, kBlockRansSlots>;  // of tokens, as bytes

// A token that is rarer than one in so many costs less as an escape than a slot would.
inline constexpr std::uint64_t kBlockRansRareToken = 1024;

// Frequencies for tokens that occur `counts` times; rare ones are left to the escapes, of
// which there are `escapes` besides.
BlockRansTable MakeBlockRansTable(std::uint8_t shift, BlockRansCounts counts, std::uint32_t escapes,
                                  std::uint64_t rare = kBlockRansRareToken);

// The table for residuals that occur so many times, counted by residual modulo 2^bits. Of wide
// samples the cheapest of those with about `shift` planes, of others one with as many: 256 slots
// describe many tokens badly, and what is left to planes costs next to nothing.
BlockRansTable ChooseBlockRansTable(std::span<const std::uint32_t> residuals, std::uint32_t bits,
                                    std::uint8_t shift);

}  // namespace forebay::compress
