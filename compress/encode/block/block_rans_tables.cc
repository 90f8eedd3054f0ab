// Frequencies of a class's tokens, which share 256 slots with the escapes. Rare tokens become
// escapes; all others get slots in proportion to their counts, and the slots that rounding left
// over or took too many are moved one by one where that gains most or costs least. Called by the
// block-rANS encoder for each class that blocks have chosen.
#include "compress/encode/block/block_rans_tables.h"

#include <algorithm>
#include <numeric>

#include "compress/encode/fixed_log.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// Tokens that may have slots, so that frequent ones keep enough of the 256.
constexpr std::uint32_t kTokensMax = 200;
// What a frequency takes in the side information, about.
constexpr std::uint64_t kFrequencyBits = 5;
constexpr std::uint64_t kBit = std::uint64_t{1} << kLogFractionBits;
// Of wide samples more than one table is made, by how rare a token may be and still have slots.
constexpr std::array<std::uint64_t, 3> kRareTokensTried = {
    kBlockRansRareToken, 2 * kBlockRansRareToken, 4 * kBlockRansRareToken};
constexpr std::uint32_t kShiftsBelow = 1, kShiftsAbove = 2;

// Where frequencies gain and lose: count * log2 of the frequency's growth, in 1/4096 bit.
std::uint64_t GrowthGain(std::uint32_t count, std::uint32_t frequency) {
  return std::uint64_t{count} * (FixedLog2(frequency + 1) - FixedLog2(frequency));
}

// Tokens and escapes of a class under `shift` planes, from counts by residual.
struct Tokens {
  BlockRansCounts counts{};
  std::uint32_t escapes = 0;

  Tokens(std::span<const std::uint32_t> residuals, std::uint32_t bits, std::uint32_t shift) {
    const unsigned unused = 32 - bits;
    for (std::uint32_t i = 0; i < residuals.size(); ++i) {
      if (residuals[i] == 0) continue;
      std::uint8_t token = 0;
      const auto residual = static_cast<std::int32_t>(i << unused) >> unused;
      if (BlockRansTokenOf(residual, shift, token)) {
        counts[token] += residuals[i];
      } else {
        escapes += residuals[i];
      }
    }
  }

  // What they come to under `table`, with the table itself, in 1/4096 bit.
  std::uint64_t Cost(const BlockRansTable& table, std::uint32_t escape_bits) const {
    const std::uint64_t slots = FixedLog2(kBlockRansSlots);
    const std::uint64_t escape = slots - FixedLog2(table.escape_slots) + escape_bits * kBit;
    std::uint64_t total = escapes, cost = escapes * escape;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::uint32_t frequency = table.frequency[i];
      total += counts[i];
      cost += counts[i] * (frequency > 0 ? slots - FixedLog2(frequency) : escape);
      cost += frequency > 0 ? kFrequencyBits * kBit : 0;
    }
    return cost + total * table.shift * kBit;
  }
};

}  // namespace

BlockRansTable MakeBlockRansTable(std::uint8_t shift, BlockRansCounts counts, std::uint32_t escapes,
                                  std::uint64_t rare) {
  BlockRansTable table;
  table.shift = shift;
  const std::uint64_t total =
      std::accumulate(counts.begin(), counts.end(), std::uint64_t{escapes});
  // Raise the bar until few enough tokens remain.
  // Ends at the latest when `rare` is 0, under which no token that occurs passes.
  for (;; rare /= 2) {
    const auto kept = std::ranges::count_if(
        counts, [&](std::uint32_t count) { return count > 0 && count * rare >= total; });
    if (kept <= kTokensMax) break;
  }
  std::uint64_t rest = 0;
  for (std::uint32_t& count : counts) {
    if (count * rare >= total) {
      rest += count;
    } else {
      count = 0;
    }
  }
  // A table needs at least one token, even if every residual escapes.
  if (rest == 0) counts[0] = 1;
  const std::uint64_t escaped = total - rest;
  const std::uint32_t tokens =
      static_cast<std::uint32_t>(std::ranges::count_if(counts, [](auto c) { return c > 0; }));
  // At least one slot, because a residual that no token reaches must be codable in every class.
  const std::uint64_t wanted = total > 0 ? escaped * kBlockRansSlots / total : 0;
  table.escape_slots =
      static_cast<std::uint8_t>(std::clamp<std::uint64_t>(wanted, 1, kBlockRansSlots - tokens));
  std::uint32_t used = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const std::uint64_t share =
        counts[i] * std::uint64_t{table.escape_slots_at()} / std::max<std::uint64_t>(rest, 1);
    table.frequency[i] = static_cast<std::uint8_t>(std::clamp<std::uint64_t>(share, 1, 255));
    used += table.frequency[i];
  }
  // Rounded shares rarely add up to the slots there are. Give to the token that gains most, or take
  // from the one that loses least, one slot at a time.
  while (used != table.escape_slots_at()) {
    const bool grow = used < table.escape_slots_at();
    std::size_t best = counts.size();
    std::uint64_t best_gain = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::uint32_t now = table.frequency[i];
      if (counts[i] == 0 || (!grow && now == 1)) continue;
      const std::uint64_t gain = GrowthGain(counts[i], grow ? now : now - 1);
      if (best == counts.size() || (grow ? gain > best_gain : gain < best_gain)) {
        best = i;
        best_gain = gain;
      }
    }
    FOREBAY_CHECK(best < counts.size());
    table.frequency[best] = static_cast<std::uint8_t>(table.frequency[best] + (grow ? 1 : -1));
    used = grow ? used + 1 : used - 1;
  }
  // Slots follow the order in which the format lists tokens: 0, -1, 1, -2, 2, ...
  std::uint32_t next = 0;
  for (std::uint32_t rank = 0; rank < kBlockRansSlots; ++rank) {
    const auto token = static_cast<std::uint8_t>(BlockRansToken(rank));
    table.first[token] = static_cast<std::uint8_t>(next);
    next += table.frequency[token];
  }
  return table;
}

BlockRansTable ChooseBlockRansTable(std::span<const std::uint32_t> residuals, std::uint32_t bits,
                                    std::uint8_t shift) {
  FOREBAY_CHECK(residuals.size() == std::size_t{1} << bits && shift < bits);
  if (bits <= 8) {
    const Tokens tokens(residuals, bits, shift);
    return MakeBlockRansTable(shift, tokens.counts, tokens.escapes);
  }
  // Samples of more than 8 bits: the estimate's number of planes is less certain, so neighbouring
  // numbers and several bars for rare tokens are tried, and the cheapest table wins.
  constexpr std::uint32_t kEscapeBits = 16;
  const std::uint32_t lowest = shift - std::min<std::uint32_t>(shift, kShiftsBelow);
  const std::uint32_t highest = std::min(bits - 1, shift + kShiftsAbove);
  BlockRansTable best;
  std::uint64_t best_cost = UINT64_MAX;
  for (std::uint32_t tried = lowest; tried <= highest; ++tried) {
    const Tokens tokens(residuals, bits, tried);
    for (const std::uint64_t rare : kRareTokensTried) {
      const BlockRansTable table =
          MakeBlockRansTable(static_cast<std::uint8_t>(tried), tokens.counts, tokens.escapes, rare);
      const std::uint64_t cost = tokens.Cost(table, kEscapeBits);
      if (cost >= best_cost) continue;
      best_cost = cost;
      best = table;
    }
  }
  return best;
}

}  // namespace forebay::compress
