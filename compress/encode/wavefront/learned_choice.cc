// Chooses the blocks that a learned predictor corrects. All pixels are corrected first, and the
// contexts' frequencies are counted with that. Then the bits of each block are compared with and
// without corrections: a block that does not gain gets back its residuals and names a copy of its
// filter that is not corrected. Costs use integer logarithms, so that every machine chooses alike.
#include "compress/encode/wavefront/learned_choice.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "compress/decode/isa.h"
#include "compress/decode/learned/predictor_run.h"
#include "compress/encode/fixed_log.h"
#include "compress/encode/wavefront/learned_view.h"
#include "compress/encode/wavefront/wavefront_entropy.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

using Work = WavefrontWork<std::uint8_t>;

// What a block must gain by not being corrected. It is more than naming another copy of the filter
// costs, because every uncorrected block makes the contexts fit all others a little less.
constexpr std::uint64_t kLearnedChangeCost = std::uint64_t{32} << kLogFractionBits;

WavefrontGroup& GroupOf(Work& work, bool inter) {
  return inter ? work.parameters.inter : work.parameters.intra;
}

// Computes residuals and energies of all pixels of `frame` under the predictor, 64 pixels at a
// time.
void CorrectFrame(const LearnedView& view, const PredictorNet& net, PredictorRun run,
                  std::uint32_t frame, Work& work) {
  const PlaneShape& shape = work.shape;
  const std::int32_t highest = (1 << shape.bits) - 1;
  const auto batch = std::make_unique<PredictorBatch>();
  for (std::uint32_t row = 0; row < shape.rows; ++row) {
    const std::uint8_t* const pixels = work.frames[frame].Row(static_cast<std::int32_t>(row));
    const std::size_t line = (std::size_t{frame} * shape.rows + row) * shape.columns;
    for (std::uint32_t begin = 0; begin < shape.columns; begin += kWavefrontLanes) {
      const std::uint32_t count = std::min(kWavefrontLanes, shape.columns - begin);
      for (std::uint32_t i = 0; i < count; ++i) {
        view.SetInputs(frame, row, begin + i, kWavefrontLanes, &batch->inputs[0][i]);
      }
      // Slots beyond `count` hold what an earlier batch left there. Their results are not read.
      run(net, *batch);
      for (std::uint32_t i = 0; i < count; ++i) {
        // The prediction as the decoder will compute it: the filter's, corrected and clamped again.
        const std::int32_t value =
            std::clamp(view.Value(frame, row, begin + i) +
                           static_cast<std::int8_t>(batch->corrections[i]),
                       0, highest);
        const std::int32_t residual = pixels[begin + i] - value;
        // A correction that was rounded up makes a negative residual likelier; such residuals
        // change their sign, so that both kinds share one distribution.
        const bool mirrored = batch->mirrored[i] != 0;
        work.residuals[line + begin + i] =
            static_cast<std::uint8_t>((mirrored ? -residual : residual) & highest);
        work.energies[line + begin + i] = batch->energies[i];
      }
    }
  }
}

// The bits, times 2^kLogFractionBits, that each block takes if it has `residuals` in the contexts
// of `work`.
std::vector<std::uint64_t> BlockCosts(const Work& work,
                                      const std::array<GroupFrequencies, 2>& frequencies,
                                      std::span<const std::uint8_t> residuals) {
  std::vector<std::uint64_t> costs(work.blocks.size());
  const PlaneShape& shape = work.shape;
  const std::uint32_t log2 = work.parameters.block_log2;
  std::size_t at = 0;
  for (std::uint32_t frame = 0; frame < shape.frames; ++frame) {
    const GroupFrequencies& group = frequencies[frame > 0 ? 1 : 0];
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      const std::size_t first =
          (std::size_t{frame} * work.block_rows + (row >> log2)) * work.block_columns;
      for (std::uint32_t column = 0; column < shape.columns; ++column, ++at) {
        const std::uint16_t frequency =
            group.contexts[work.contexts[at]].frequency[residuals[at]];
        // What does not occur in a context will, if its block is chosen, about once.
        // A symbol of frequency f takes log2(2048 / f) bits.
        costs[first + (column >> log2)] +=
            (std::uint64_t{kWavefrontProbabilityBits} << kLogFractionBits) -
            FixedLog2(std::max<std::uint16_t>(frequency, 1));
      }
    }
  }
  return costs;
}

// Residuals and energies of all pixels that the predictor can correct; its filters are marked.
void CorrectAll(const Predictor& predictor, Work& work) {
  work.predictor = &predictor;
  work.energies.resize(work.residuals.size());
  // Takes over the filters' predictions from the residuals, which CorrectFrame then overwrites.
  const LearnedView view(work);
  const PredictorRun run = PredictorRunOf(BestIsa());
  for (std::uint32_t frame = 0; frame < work.shape.frames; ++frame) {
    const PredictorNet& net = predictor.net(frame > 0);
    if (net.present()) CorrectFrame(view, net, run, frame, work);
  }
  for (const bool inter : {false, true}) {
    WavefrontGroup& group = GroupOf(work, inter);
    for (std::uint32_t i = 0; i < group.filter_count; ++i) {
      group.filters[i].learned = predictor.net(inter).present();
    }
  }
  // The marks of skipped blocks were those of the residuals without corrections.
  for (WavefrontBlock& block : work.blocks) block.filter &= 0x0F;
  MarkSkippedBlocks(work);
}

// The parts of the work that corrections change, as they were before.
struct Plain {
  WavefrontParameters parameters;
  std::vector<WavefrontBlock> blocks;
  std::vector<std::uint8_t> residuals;
};

// Restores block `index` and its residuals.
void TakeBack(const Plain& plain, std::size_t index, Work& work) {
  const std::uint32_t size = 1U << work.parameters.block_log2;
  const std::size_t frame_blocks = std::size_t{work.block_rows} * work.block_columns;
  const std::size_t frame = index / frame_blocks;
  const auto top = static_cast<std::uint32_t>(index % frame_blocks / work.block_columns) * size;
  const auto left = static_cast<std::uint32_t>(index % work.block_columns) * size;
  // Blocks at the lower and the right edge may reach beyond the frame.
  const std::uint32_t bottom = std::min(top + size, work.shape.rows);
  const std::uint32_t right = std::min(left + size, work.shape.columns);
  for (std::uint32_t row = top; row < bottom; ++row) {
    const auto line = static_cast<std::ptrdiff_t>((frame * work.shape.rows + row) *
                                                  work.shape.columns);
    std::copy(plain.residuals.begin() + line + left, plain.residuals.begin() + line + right,
              work.residuals.begin() + line + left);
  }
  work.blocks[index] = plain.blocks[index];
}

// Adds uncorrected copies of a group's filters, and lets the blocks in `kept` name them.
void SplitFilters(std::span<const bool> kept, std::size_t begin, std::size_t end,
                  WavefrontGroup& group, std::vector<WavefrontBlock>& blocks) {
  std::array<std::uint8_t, kWavefrontFiltersMax>
      copy_of{};  // 0: none yet, filter 0 never being one
  for (std::size_t i = begin; i < end; ++i) {
    if (!kept[i]) continue;
    const std::uint8_t filter = blocks[i].filter & 0x0F;
    if (copy_of[filter] == 0) {
      group.filters[group.filter_count] = group.filters[filter];
      group.filters[group.filter_count].learned = false;
      copy_of[filter] = static_cast<std::uint8_t>(group.filter_count++);
    }
    blocks[i].filter =
        static_cast<std::uint8_t>(copy_of[filter] | (blocks[i].filter & kWavefrontSkip));
  }
}

}  // namespace

bool ChooseCorrections(const Predictor& predictor, WavefrontWork<std::uint8_t>& work) {
  return CorrectBlocks(predictor, work, [](std::size_t, std::uint64_t with,
                                           std::uint64_t without) {
    return with < without + kLearnedChangeCost;
  });
}

bool CorrectBlocks(const Predictor& predictor, WavefrontWork<std::uint8_t>& work,
                   const CorrectionRule& rule) {
  // At most half of the filters are in use, so that each can get an uncorrected copy
  // (SplitFilters).
  FOREBAY_CHECK(work.parameters.intra.filter_count <= kWavefrontFiltersMax / 2 &&
                work.parameters.inter.filter_count <= kWavefrontFiltersMax / 2);
  const std::size_t intra_blocks = std::size_t{work.block_rows} * work.block_columns;
  const Plain plain = {work.parameters, work.blocks, work.residuals};
  CorrectAll(predictor, work);
  ChooseMagnitudeShift(work);
  const std::array<GroupFrequencies, 2> frequencies = ModelContexts(work);
  const std::vector<std::uint64_t> costs = BlockCosts(work, frequencies, work.residuals);
  // Both are priced in the contexts of the corrected pixels, which the network chooses in any case.
  const std::vector<std::uint64_t> plain_costs = BlockCosts(work, frequencies, plain.residuals);
  const auto kept = std::make_unique<bool[]>(work.blocks.size());
  bool any = false;
  for (std::size_t i = 0; i < work.blocks.size(); ++i) {
    const bool correctable = predictor.net(i >= intra_blocks).present();
    kept[i] = correctable && !rule(i, costs[i], plain_costs[i]);
    any = any || (correctable && !kept[i]);
    if (kept[i]) TakeBack(plain, i, work);
  }
  // Everything as it was: the caller then writes no learned body.
  if (!any) {
    work.parameters = plain.parameters;
    work.blocks = plain.blocks;
    work.residuals = plain.residuals;
    work.energies.clear();
    work.predictor = nullptr;
    return false;
  }
  const std::span<const bool> all(kept.get(), work.blocks.size());
  SplitFilters(all, 0, intra_blocks, work.parameters.intra, work.blocks);
  SplitFilters(all, intra_blocks, work.blocks.size(), work.parameters.inter, work.blocks);
  return true;
}

}  // namespace forebay::compress
