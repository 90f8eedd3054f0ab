// Step 5 of encoding wavefront planes: contexts and their frequencies. Counts symbols by energy,
// cuts the range of energies into at most 16 contexts by dynamic programming, so that the symbols
// with their tables cost least, and scales each context's counts to 2048 slots. All costs are
// integers.
#include <algorithm>
#include <memory>
#include <vector>

#include "compress/encode/fixed_log.h"
#include "compress/encode/wavefront/wavefront_entropy.h"
#include "compress/format/plane/wavefront_side.h"
#include "compress/format/plane/wavefront_taps.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kEnergies = 256;
constexpr std::uint64_t kSymbolCost = 4U << kLogFractionBits;  // of its frequency, about
constexpr std::size_t kBinsMax = 48;

// Symbols by energy.
using EnergyCounts = std::array<std::array<std::uint32_t, 256>, kEnergies>;

// Neighbouring energies together, so that no bin is rarer than a share of the whole.
struct EnergyBins {
  std::vector<std::uint32_t> begins;  // the first energy of each
  std::vector<std::array<std::uint32_t, 256>> counts;
};

// At most about kBinsMax bins: the cut below takes time with the square of their number.
EnergyBins BinEnergies(const EnergyCounts& counts) {
  std::array<std::uint64_t, kEnergies> mass{};
  std::uint64_t total = 0;
  for (std::size_t energy = 0; energy < kEnergies; ++energy) {
    for (std::uint32_t count : counts[energy]) mass[energy] += count;
    total += mass[energy];
  }
  EnergyBins bins;
  std::uint64_t held = 0;
  for (std::size_t energy = 0; energy < kEnergies; ++energy) {
    // A bin is closed only once it holds a symbol, so that none but the last can be empty.
    if (bins.begins.empty() || (held >= total / kBinsMax && held > 0)) {
      bins.begins.push_back(static_cast<std::uint32_t>(energy));
      bins.counts.emplace_back();
      held = 0;
    }
    held += mass[energy];
    for (std::size_t symbol = 0; symbol < 256; ++symbol) {
      bins.counts.back()[symbol] += counts[energy][symbol];
    }
  }
  return bins;
}

// What coding a bin's symbols by their own frequencies costs, the frequencies included.
std::uint64_t BinCost(const std::array<std::uint32_t, 256>& counts) {
  std::uint64_t total = 0;
  std::uint64_t terms = 0;
  std::uint64_t symbols = 0;
  for (std::uint32_t count : counts) {
    if (count == 0) continue;
    total += count;
    terms += FixedEntropyTerm(count);
    ++symbols;
  }
  // N log N less the sum of n log n is the entropy; each symbol adds what its frequency takes.
  return FixedEntropyTerm(total) - terms + symbols * kSymbolCost;
}

// The cheapest cut of the bins into at most kWavefrontContexts runs, by dynamic programming.
std::array<std::uint8_t, kWavefrontContexts - 1> CutBins(const EnergyBins& bins) {
  const std::size_t count = bins.begins.size();
  // cost[from][to]: bins from .. to - 1 as one context.
  std::vector<std::vector<std::uint64_t>> cost(count, std::vector<std::uint64_t>(count + 1));
  for (std::size_t from = 0; from < count; ++from) {
    std::array<std::uint32_t, 256> sum{};
    for (std::size_t to = from; to < count; ++to) {
      for (std::size_t symbol = 0; symbol < 256; ++symbol) sum[symbol] += bins.counts[to][symbol];
      cost[from][to + 1] = BinCost(sum);
    }
  }
  // best[k][to]: the first `to` bins in k contexts; cut[k][to] is where the last one begins.
  constexpr std::uint64_t kNever = ~std::uint64_t{0} / 2;
  std::vector<std::vector<std::uint64_t>> best(kWavefrontContexts + 1,
                                               std::vector<std::uint64_t>(count + 1, kNever));
  std::vector<std::vector<std::size_t>> cut(kWavefrontContexts + 1,
                                            std::vector<std::size_t>(count + 1, 0));
  // Nothing in no contexts costs nothing. Every other entry of row 0 is impossible.
  best[0][0] = 0;
  for (std::size_t runs = 1; runs <= kWavefrontContexts; ++runs) {
    for (std::size_t to = 1; to <= count; ++to) {
      for (std::size_t from = 0; from < to; ++from) {
        if (best[runs - 1][from] == kNever) continue;
        const std::uint64_t total = best[runs - 1][from] + cost[from][to];
        if (total < best[runs][to]) {
          best[runs][to] = total;
          cut[runs][to] = from;
        }
      }
    }
  }
  std::size_t runs = 1;
  for (std::size_t k = 2; k <= kWavefrontContexts; ++k) {
    // If costs are equal, fewer contexts win, because the decoder has to build a table for each.
    if (best[k][count] < best[runs][count]) runs = k;
  }
  // Thresholds that no energy is to reach stay 255; energy 255 is then in the last context,
  // which the decoder's rule defines and the counts below follow.
  std::array<std::uint8_t, kWavefrontContexts - 1> thresholds;
  thresholds.fill(255);
  std::size_t to = count;
  for (std::size_t k = runs; k > 1; --k) {
    to = cut[k][to];
    thresholds[k - 2] = static_cast<std::uint8_t>(bins.begins[to]);
  }
  return thresholds;
}

// Frequencies that add up to kWavefrontProbabilityScale, at least 1 for each symbol that occurs.
SymbolFrequencies Quantise(const std::array<std::uint32_t, 256>& counts) {
  SymbolFrequencies result;
  std::uint64_t total = 0;
  for (std::uint32_t count : counts) total += count;
  if (total == 0) return result;
  // Slots that are still to be given out; negative where rounding up gave out too many.
  std::int64_t left = kWavefrontProbabilityScale;
  for (std::size_t symbol = 0; symbol < 256; ++symbol) {
    if (counts[symbol] == 0) continue;
    const std::uint64_t scaled =
        (std::uint64_t{counts[symbol]} * kWavefrontProbabilityScale + total / 2) / total;
    result.frequency[symbol] = static_cast<std::uint16_t>(std::max<std::uint64_t>(scaled, 1));
    left -= result.frequency[symbol];
  }
  // Rounded frequencies rarely add up. One by one, slots go to the symbol that gains most, or are
  // taken from the symbol that loses least: count / frequency decides, without a division.
  while (left != 0) {
    std::size_t chosen = 256;
    for (std::size_t symbol = 0; symbol < 256; ++symbol) {
      const std::uint64_t frequency = result.frequency[symbol];
      if (frequency == 0 || (left < 0 && frequency == 1)) continue;
      if (chosen == 256) {
        chosen = symbol;
        continue;
      }
      // Compares counts[symbol] / frequency with counts[chosen] / its frequency, multiplied out.
      const std::uint64_t mine = std::uint64_t{counts[symbol]} * result.frequency[chosen];
      const std::uint64_t its = std::uint64_t{counts[chosen]} * frequency;
      if (left > 0 ? mine > its : mine < its) chosen = symbol;
    }
    const int change = left > 0 ? 1 : -1;
    result.frequency[chosen] = static_cast<std::uint16_t>(result.frequency[chosen] + change);
    left -= change;
  }
  return result;
}

// `before` counts slots in the order in which the table lists the symbols.
void SetSlots(std::uint32_t bits, SymbolFrequencies& frequencies) {
  std::uint32_t next = 0;
  for (std::uint32_t rank = 0; rank < WavefrontSymbolCount(bits); ++rank) {
    const std::uint32_t symbol = WavefrontSymbolAt(rank, bits);
    frequencies.before[symbol] = static_cast<std::uint16_t>(next);
    next += frequencies.frequency[symbol];
  }
}

}  // namespace

template <typename T>
void ChooseMagnitudeShift(WavefrontWork<T>& work) {
  // An energy is a sum of eight magnitudes, or of twelve in inter frames: while their mean is at
  // most 10, most energies are below 255.
  std::uint64_t sum = 0;
  for (T residual : work.residuals) sum += WavefrontMagnitude(residual, work.shape.bits, 0);
  std::uint32_t shift = 0;
  while (shift < 8 && (sum >> shift) > work.residuals.size() * 10) ++shift;
  work.parameters.magnitude_shift = shift;
}

template <typename T>
std::array<GroupFrequencies, 2> ModelContexts(WavefrontWork<T>& work) {
  const PlaneShape& shape = work.shape;
  const std::size_t frame_samples = shape.frame_samples();
  std::vector<std::uint8_t> sizes(work.residuals.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Exactly as the decoder sees them, since a context that differs would break the decoding.
    sizes[i] = WavefrontMagnitude(work.residuals[i], shape.bits, work.parameters.magnitude_shift);
  }
  work.contexts.resize(work.residuals.size());
  const std::uint32_t log2 = work.parameters.block_log2;
  std::array<std::unique_ptr<EnergyCounts>, 2> counts;
  for (auto& group : counts) group = std::make_unique<EnergyCounts>();
  std::size_t at = 0;
  for (std::uint32_t frame = 0; frame < shape.frames; ++frame) {
    const std::uint8_t* const own = &sizes[frame * frame_samples];
    const std::uint8_t* const previous = frame > 0 ? own - frame_samples : nullptr;
    EnergyCounts& group = *counts[frame > 0 ? 1 : 0];
    // In frames with a network, the network says the energy of each pixel.
    const bool judged = work.predictor != nullptr && work.predictor->net(frame > 0).present();
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      const WavefrontBlock* const blocks =
          &work.blocks[(std::size_t{frame} * work.block_rows + (row >> log2)) * work.block_columns];
      for (std::uint32_t column = 0; column < shape.columns; ++column, ++at) {
        const WavefrontBlock& block = blocks[column >> log2];
        const std::uint32_t energy =
            judged ? work.energies[at]
                   : PixelEnergy(own, previous, shape.columns, row, column);
        // `contexts` holds energies for now. The last loop turns them into contexts, once the
        // thresholds are known.
        work.contexts[at] = static_cast<std::uint8_t>(energy);
        // Pixels of skipped blocks are not coded, so they do not count.
        if ((block.filter & kWavefrontSkip) == 0) {
          ++group[energy][TokenOf(work.residuals[at], shape.bits).symbol];
        }
      }
    }
  }
  std::array<GroupFrequencies, 2> result;
  std::array<std::array<std::uint8_t, kEnergies>, 2> context_of;
  for (std::size_t g = 0; g < 2; ++g) {
    WavefrontGroup& group = g > 0 ? work.parameters.inter : work.parameters.intra;
    group.thresholds = CutBins(BinEnergies(*counts[g]));
    std::vector<std::array<std::uint32_t, 256>> sums(kWavefrontContexts);
    for (std::size_t energy = 0; energy < kEnergies; ++energy) {
      const std::uint32_t context = EnergyContext(group, static_cast<std::uint32_t>(energy));
      context_of[g][energy] = static_cast<std::uint8_t>(context);
      for (std::size_t symbol = 0; symbol < 256; ++symbol) {
        sums[context][symbol] += (*counts[g])[energy][symbol];
      }
    }
    for (std::size_t context = 0; context < kWavefrontContexts; ++context) {
      result[g].contexts[context] = Quantise(sums[context]);
      SetSlots(shape.bits, result[g].contexts[context]);
    }
  }
  for (std::size_t i = 0; i < work.contexts.size(); ++i) {
    work.contexts[i] = context_of[i < frame_samples ? 0 : 1][work.contexts[i]];
  }
  return result;
}

template void ChooseMagnitudeShift(WavefrontWork<std::uint8_t>&);
template void ChooseMagnitudeShift(WavefrontWork<std::uint16_t>&);
template std::array<GroupFrequencies, 2> ModelContexts(WavefrontWork<std::uint8_t>&);
template std::array<GroupFrequencies, 2> ModelContexts(WavefrontWork<std::uint16_t>&);

}  // namespace forebay::compress
