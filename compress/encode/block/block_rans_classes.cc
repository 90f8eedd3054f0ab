// Classes of blocks by Lloyd's algorithm (S. Lloyd, "Least squares quantization in PCM", 1982),
// with code length in place of distance. A class is a histogram of residuals: EstimateClass finds
// the number of low bits ("planes") that are best sent without a model, and from it the cost of
// every residual. The block-rANS encoder calls this on a sample of its blocks, and again on all of
// them where its effort says so.
#include "compress/encode/block/block_rans_classes.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "compress/encode/block/block_rans_tables.h"
#include "compress/encode/fixed_log.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// Rounds in which blocks choose classes and classes are estimated again.
constexpr std::uint32_t kRounds = 3;
// The shift that is no longer tried. At a shift of 8 tokens reach every residual of 16 bits.
constexpr std::uint32_t kShiftMax = 10;
// Beyond so many tokens, 256 slots describe a distribution badly: an eighth of a bit is added.
constexpr std::uint32_t kTokensCrowded = 128;

using Counts = std::array<std::uint32_t, kBlockRansBuckets>;

// What is known of a class: its planes of low bits, and the cost of a residual of each bucket in
// kBlockRansCostUnit-ths of a bit.
struct Estimate {
  std::uint8_t shift = 0;
  std::array<std::uint16_t, kBlockRansBuckets> costs{};
};

// The middle of a bucket, and the binary logarithm of its width.
struct Bucket {
  std::int32_t middle = 0;
  std::uint32_t width_log2 = 0;

  explicit Bucket(std::size_t index) {
    if (index < 256) {
      middle = static_cast<std::int8_t>(static_cast<std::uint8_t>(index));
      return;
    }
    const auto place = static_cast<std::uint32_t>(index - 256) & 63;
    const std::uint32_t octave = std::min(place / 4, 10U);
    width_log2 = octave + 5;
    middle = static_cast<std::int32_t>(((4 + place % 4) << width_log2) +
                                       (1U << (width_log2 - 1)));
    if (index >= 256 + 64) middle = -middle;
  }
};

// A class's tokens under a number of planes, and the bits that its residuals come to.
struct Split {
  std::array<std::uint32_t, kBlockRansSlots> tokens{};
  std::uint32_t escapes = 0;
  std::uint64_t cost = 0;  // in 1/4096 bit

  Split(const Counts& counts, std::uint32_t buckets, std::uint32_t total, std::uint32_t shift,
        std::uint32_t escape_bits) {
    // Bits that are sent as they are: low planes, positions within a bucket, escaped residuals.
    std::uint64_t plain = 0;
    for (std::uint32_t i = 0; i < buckets; ++i) {
      if (counts[i] == 0) continue;
      const Bucket bucket(i);
      std::uint8_t token = 0;
      if (BlockRansTokenOf(bucket.middle, shift, token)) {
        tokens[token] += counts[i];
        plain += std::uint64_t{counts[i]} * (std::max(bucket.width_log2, shift));
      } else {
        escapes += counts[i];
        plain += std::uint64_t{counts[i]} * (escape_bits + shift);
      }
    }
    // The entropy of the tokens: N log N less the sum of n log n, in fixed point.
    cost = (plain << kLogFractionBits) + FixedEntropyTerm(total) - FixedEntropyTerm(escapes);
    std::uint32_t used = 0;
    for (const std::uint32_t count : tokens) {
      cost -= FixedEntropyTerm(count);
      used += count > 0 ? 1 : 0;
    }
    if (used > kTokensCrowded) cost += std::uint64_t{total} << (kLogFractionBits - 3);
  }
};

Estimate EstimateClass(const Counts& counts, std::uint32_t bits) {
  const std::uint32_t buckets = bits <= 8 ? 256 : kBlockRansBuckets;
  const std::uint32_t escape_bits = bits <= 8 ? 8 : 16;
  const std::uint32_t total = std::accumulate(counts.begin(), counts.end(), 0U);
  Estimate estimate;
  if (total == 0) {
    estimate.costs.fill(kBlockRansCostMax);
    return estimate;
  }
  // Try more and more planes, until one more does not lower the cost.
  Split best(counts, buckets, total, 0, escape_bits);
  for (std::uint8_t shift = 1; shift < std::min(bits, kShiftMax); ++shift) {
    const Split next(counts, buckets, total, shift, escape_bits);
    if (next.cost >= best.cost) break;
    best = next;
    estimate.shift = shift;
  }
  constexpr std::uint32_t kToUnits = (1U << kLogFractionBits) / kBlockRansCostUnit;
  const auto price = [&](std::uint64_t count, std::uint64_t of) {
    return static_cast<std::uint32_t>((FixedLog2(of) - FixedLog2(count)) / kToUnits);
  };
  // An escape costs its share of the slots, which is at least one of 256, and the residual itself.
  // Counts are raised by one, so that a class without escapes still has a finite cost for one.
  const std::uint32_t slot_bits = static_cast<std::uint32_t>(std::bit_width(kBlockRansSlots)) - 1;
  const std::uint32_t escape =
      std::min(price(best.escapes + std::uint64_t{1}, total + std::uint64_t{1}),
               slot_bits * kBlockRansCostUnit) +
      escape_bits * kBlockRansCostUnit;
  for (std::uint32_t i = 0; i < buckets; ++i) {
    const Bucket bucket(i);
    std::uint8_t token = 0;
    std::uint32_t cost = escape;
    if (BlockRansTokenOf(bucket.middle, estimate.shift, token)) {
      // A quarter of an occurrence is added to each of 256 tokens: a token that the sample lacks is
      // dear, and not impossible.
      const std::uint32_t direct =
          price(4 * std::uint64_t{best.tokens[token]} + 1, 4 * std::uint64_t{total} + 256);
      cost = std::min(escape, direct) +
             (std::max(bucket.width_log2, std::uint32_t{estimate.shift}) - estimate.shift) *
                 kBlockRansCostUnit;
    }
    estimate.costs[i] = static_cast<std::uint16_t>(
        std::min(cost + estimate.shift * kBlockRansCostUnit, kBlockRansCostMax));
  }
  return estimate;
}

}  // namespace

std::vector<std::uint8_t> EstimateBlockRansClasses(std::span<const BlockRansResiduals> blocks,
                                                   std::span<const std::uint8_t> chosen,
                                                   std::uint32_t bits, std::uint32_t classes,
                                                   BlockRansCosts& costs) {
  FOREBAY_CHECK(classes <= kBlockRansCostColumns && chosen.size() == blocks.size());
  std::vector<Counts> counts(classes);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    // Blocks without residuals have no class and would only make the token 0 look frequent.
    if (chosen[i] >= classes) continue;
    Counts& mine = counts[chosen[i]];
    for (const std::int16_t residual : blocks[i]) {
      ++mine[bits <= 8 ? static_cast<std::uint8_t>(residual) : BlockRansBucket(residual)];
    }
  }
  std::vector<std::uint8_t> shifts(classes);
  for (auto& line : costs) line.fill(kBlockRansCostMax);
  for (std::uint32_t c = 0; c < classes; ++c) {
    const Estimate estimate = EstimateClass(counts[c], bits);
    shifts[c] = estimate.shift;
    for (std::size_t i = 0; i < kBlockRansBuckets; ++i) costs[i][c] = estimate.costs[i];
  }
  return shifts;
}

std::vector<std::uint8_t> ChooseBlockRansClasses(std::span<const BlockRansResiduals> blocks,
                                                 std::uint32_t bits, std::uint32_t classes,
                                                 BlockRansCosts& costs) {
  // Begin with classes of equally many blocks, sorted by the size of their residuals.
  std::vector<std::uint64_t> order(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    order[i] = std::uint64_t{BlockRansSize(blocks[i])} << 32 | i;
  }
  std::ranges::sort(order);
  std::vector<std::uint8_t> chosen(blocks.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    chosen[order[rank] & 0xFFFF'FFFF] = static_cast<std::uint8_t>(rank * classes / order.size());
  }
  for (std::uint32_t round = 0;; ++round) {
    std::vector<std::uint8_t> shifts =
        EstimateBlockRansClasses(blocks, chosen, bits, classes, costs);
    if (round == kRounds) return shifts;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      BlockRansCostLine sums;
      BlockRansBlockCosts(blocks[i], bits > 8, costs, sums);
      chosen[i] = static_cast<std::uint8_t>(
          std::min_element(sums.begin(), sums.begin() + classes) - sums.begin());
    }
  }
}

}  // namespace forebay::compress
