// Classes of the brisk encoder: what residuals cost in them, and the frequencies they are coded
// with.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/encode/brisk_kernels.h"

namespace forebay::compress {

// A class as the format has it; by token, as a byte.
struct BriskTable {
  std::uint8_t shift = 0;
  std::uint8_t escape_slots = 1;
  std::array<std::uint8_t, kBriskSlots> frequency{}, first{};

  std::uint32_t escape_slots_at() const { return kBriskSlots - escape_slots; }
};

// A residual's token in a class of `shift` planes; false where it has none.
inline bool BriskTokenOf(std::int32_t residual, std::uint32_t shift, std::uint8_t& token) {
  const std::int32_t value = residual >> shift;
  token = static_cast<std::uint8_t>(value);
  return value >= -128 && value <= 127;
}

// Sorts sampled blocks into at most `classes` classes by turns: each block takes the class that
// codes it in the fewest bits, each class the distribution of its blocks (after S. Lloyd, "Least
// squares quantization in PCM", 1982). Returns each class's planes; `costs` has a column for each.
std::vector<std::uint8_t> ChooseBriskClasses(std::span<const BriskResiduals> blocks,
                                             std::uint32_t bits, std::uint32_t classes,
                                             BriskCosts& costs);

// Frequencies for tokens that occur `counts` times; the seldom ones are left to the escapes, of
// which there are `escapes` besides.
BriskTable MakeBriskTable(std::uint8_t shift, std::array<std::uint32_t, kBriskSlots> counts,
                          std::uint32_t escapes);

}  // namespace forebay::compress
