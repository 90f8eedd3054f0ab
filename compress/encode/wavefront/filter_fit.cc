// Step 2 of encoding wavefront planes: fits the filters by turns. Each block takes the filter that
// costs it least, then each filter is fitted to its blocks by weighted least squares (after I.
// Matsuda et al., "Lossless coding using variable block-size adaptive prediction optimized for each
// image", EUSIPCO 2005). The first filters are standard predictors that are never fitted. At the
// end the block size is chosen, 16 or 8, and each block's filter with the cost of naming it.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "compress/encode/wavefront/block_taps.h"
#include "compress/encode/wavefront/wavefront_work.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kReferenceTap = 2;  // north: weights come to one through it
constexpr std::uint32_t kChangeCost = 5 * 256;  // of a block's filter that is not its neighbour's
// The side information costs this much for naming a filter, in 1/256 of a bit as in QuarterCosts.
constexpr std::uint32_t kStayCost = 48;
constexpr std::size_t kFitBlocksMin = 256;  // fewer are all fitted to
// Standard filters that are never fitted: pictures that were drawn, not taken, obey them exactly.
constexpr std::uint32_t kStandardKept = 4;

// The places of neighbours in a filter's weights (kCurrentTaps, then kPreviousTaps, kEarlierTaps).
enum TapIndex : std::size_t { kWest, kWest2, kNorth, kNorthWest, kNorthEast, kNorth2 };
constexpr std::size_t kPrevious = kIntraTapCount;
constexpr std::size_t kPreviousNorth = kIntraTapCount + 2;
constexpr std::size_t kPreviousWest = kIntraTapCount + 4;
constexpr std::size_t kEarlier = kIntraTapCount + kPreviousTaps.size();

struct StandardWeight {
  std::size_t tap;
  int weight;
};

WavefrontFilter Standard(std::initializer_list<StandardWeight> weights, bool clamped = false) {
  WavefrontFilter filter;
  for (const auto& [tap, weight] : weights) {
    filter.weights[tap] = static_cast<std::int16_t>(weight);
  }
  filter.clamped = clamped;
  return filter;
}

// Standard predictors within a frame: the median edge detector, means of neighbours, gradients. In
// units of 1/128.
std::vector<WavefrontFilter> StandardIntra() {
  return {Standard({{kWest, 128}, {kNorth, 128}, {kNorthWest, -128}}, true),
          Standard({{kWest, 64}, {kNorth, 64}}),
          Standard({{kWest, 96}, {kNorth, 96}, {kNorthWest, -64}}),
          Standard({{kWest, 128}}),
          Standard({{kNorth, 128}}),
          Standard({{kWest, 128}, {kNorth, 128}, {kNorthWest, -128}}),
          Standard({{kNorth, 255}, {kNorth2, -127}}),
          Standard({{kWest, 64}, {kNorthEast, 64}})};
}

// Standard predictors with earlier frames: in place, temporal gradients, means.
std::vector<WavefrontFilter> StandardInter() {
  return {Standard({{kPrevious, 128}}),
          Standard({{kPrevious, 128}, {kWest, 128}, {kPreviousWest, -128}}),
          Standard({{kPrevious, 128}, {kNorth, 128}, {kPreviousNorth, -128}}),
          Standard({{kWest, 128}, {kNorth, 128}, {kNorthWest, -128}}, true),
          Standard({{kPrevious, 128},
                    {kWest, 64},
                    {kPreviousWest, -64},
                    {kNorth, 64},
                    {kPreviousNorth, -64}}),
          Standard({{kWest, 64}, {kNorth, 64}}),
          Standard({{kPrevious, 64}, {kEarlier, 64}}),
          Standard({{kPrevious, 64}, {kWest, 32}, {kNorth, 32}})};
}

void SetStandard(const std::vector<WavefrontFilter>& standard, std::uint32_t count,
                 WavefrontGroup& group) {
  group.filter_count = count;
  for (std::uint32_t i = 0; i < count; ++i) group.filters[i] = standard[i % standard.size()];
  // Copies of a standard filter part ways by a small tilt between west and north.
  for (std::uint32_t i = static_cast<std::uint32_t>(standard.size()); i < count; ++i) {
    group.filters[i].clamped = false;
    group.filters[i].weights[kWest] = static_cast<std::int16_t>(
        group.filters[i].weights[kWest] + static_cast<int>(i) - 4);
    group.filters[i].weights[kNorth] = static_cast<std::int16_t>(
        group.filters[i].weights[kNorth] - static_cast<int>(i) + 4);
  }
}

// The normal equations of one filter's weighted least squares. Integers, so that the order of
// additions does not matter.
struct NormalEquations {
  std::array<std::array<std::int64_t, kInterTapCount>, kInterTapCount> matrix{};
  std::array<std::int64_t, kInterTapCount> right{};
  std::int64_t pixels = 0;
};

// Solves the equations for weights in units of 1/128. Returns nothing if they do not determine the
// weights.
std::optional<WavefrontFilter> Solve(const NormalEquations& equations, std::size_t taps) {
  // Cholesky decomposition with a ridge, which keeps weights small where taps are nearly equal. The
  // file is compiled without fused multiply-add, so that all machines round alike.
  std::array<std::array<double, kInterTapCount>, kInterTapCount> factor{};
  const double ridge = static_cast<double>(equations.pixels) * 0.5 + 32;
  for (std::size_t i = 0; i < taps; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      // The row and the column of the reference tap are zero, since its differences to itself are;
      // the ridge keeps the matrix positive there.
      auto sum = static_cast<double>(equations.matrix[i][j]);
      if (i == j) sum += ridge;
      for (std::size_t k = 0; k < j; ++k) sum -= factor[i][k] * factor[j][k];
      if (i != j) {
        factor[i][j] = sum / factor[j][j];
      } else if (sum > 0) {
        factor[i][i] = std::sqrt(sum);
      } else {
        return std::nullopt;
      }
    }
  }
  // Forward and back substitution.
  std::array<double, kInterTapCount> solution{};
  for (std::size_t i = 0; i < taps; ++i) {
    auto sum = static_cast<double>(equations.right[i]);
    for (std::size_t k = 0; k < i; ++k) sum -= factor[i][k] * solution[k];
    solution[i] = sum / factor[i][i];
  }
  for (std::size_t i = taps; i-- > 0;) {
    double sum = solution[i];
    for (std::size_t k = i + 1; k < taps; ++k) sum -= factor[k][i] * solution[k];
    solution[i] = sum / factor[i][i];
  }
  WavefrontFilter filter;
  int total = 0;
  for (std::size_t i = 0; i < taps; ++i) {
    if (i == kReferenceTap) continue;
    // Round to 1/128; north, the reference, takes what is missing to a sum of one.
    const double scaled = std::clamp(solution[i] * (1 << kWavefrontWeightBits), -250.0, 250.0);
    filter.weights[i] = static_cast<std::int16_t>(std::lrint(scaled));
    total += filter.weights[i];
  }
  const int rest = (1 << kWavefrontWeightBits) - total;
  if (rest < kWavefrontWeightMin || rest > kWavefrontWeightMax) return std::nullopt;
  filter.weights[kReferenceTap] = static_cast<std::int16_t>(rest);
  return filter;
}

// Larger differences are left out of the fit, so that the sums of weighted products fit DotProduct.
constexpr std::int32_t kFitDifferenceMax = 511;

// The shift that brings most of a block's differences below kFitDifferenceMax. Zero for bytes.
template <typename T>
std::uint32_t FitShift(const BlockTaps<T>& block) {
  if constexpr (sizeof(T) == 1) return 0;
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < kTapBlockPixels; ++i) {
    sum += static_cast<std::uint32_t>(std::abs(block.target[i] - block.taps[kReferenceTap][i]));
  }
  std::uint32_t shift = 0;
  while ((sum >> shift) * 8 / kTapBlockPixels > kFitDifferenceMax) ++shift;
  return shift;
}

// A pixel's weight by its error: 32 / (1 + error), at least 1.
constexpr auto kFitWeights = [] {
  std::array<std::int16_t, 33> weights{};
  for (std::size_t error = 0; error < weights.size(); ++error) {
    weights[error] = static_cast<std::int16_t>(std::max<std::size_t>(32 / (1 + error), 1));
  }
  return weights;
}();

// Adds the pixels of every `stride`-th row of a block to the equations, weighted by 1 / (1 +
// error), so that pixels which the filter predicts well count more. For samples of more than 8
// bits, differences are scaled by the block's own size, and pixels beside a jump are left out: no
// filter predicts them, and they would outweigh all others.
template <typename T>
void Accumulate(const BlockTaps<T>& block, const typename BlockTaps<T>::Errors& errors,
                std::uint32_t stride, NormalEquations& equations) {
  using Value = typename BlockTaps<T>::Value;
  using Line = typename BlockTaps<T>::Line;
  const std::uint32_t shift = FitShift(block);
  alignas(64) std::array<Line, kInterTapCount + 1> plain;
  alignas(64) Line weight{};
  alignas(64) Line weighted;
  std::uint32_t used = 0;
  for (std::uint32_t row = 0; row < kTapBlockSize; row += stride, used += kTapBlockSize) {
    const std::uint32_t from = row * kTapBlockSize;
    // `largest` has, for each pixel, the largest difference among its neighbours. Bytes cannot
    // exceed the limit.
    std::array<std::int32_t, kTapBlockSize> largest{};
    const Value* const reference = &block.taps[kReferenceTap][from];
    const auto subtract = [&](const Value* values, Line& line) {
      for (std::uint32_t i = 0; i < kTapBlockSize; ++i) {
        // Differences to north, so that the weights need not be forced to a sum of one: north takes
        // the rest.
        const std::int32_t difference = (values[i] - reference[i]) >> shift;
        if constexpr (sizeof(T) > 1) largest[i] = std::max(largest[i], std::abs(difference));
        line[used + i] = static_cast<Value>(difference);
      }
    };
    for (std::uint32_t tap = 0; tap < block.tap_count; ++tap) {
      subtract(&block.taps[tap][from], plain[tap]);
    }
    subtract(&block.target[from], plain[kInterTapCount]);
    for (std::uint32_t i = 0; i < kTapBlockSize; ++i) {
      const std::int32_t error = std::abs(std::int32_t{errors[from + i]}) >> shift;
      const Value whole = kFitWeights[static_cast<std::size_t>(std::min(error, 32))];
      weight[used + i] = largest[i] > kFitDifferenceMax ? Value{0} : whole;
    }
  }
  equations.pixels += used;
  for (std::uint32_t i = 0; i < block.tap_count; ++i) {
    if (i == kReferenceTap) continue;
    // The weighted line once, and then a dot product with each other line: symmetric, so j <= i is
    // enough.
    for (std::uint32_t k = 0; k < used; ++k) {
      weighted[k] = static_cast<Value>(plain[i][k] * weight[k]);
    }
    for (std::uint32_t j = 0; j <= i; ++j) {
      if (j == kReferenceTap) continue;
      equations.matrix[i][j] += DotProduct(weighted.data(), plain[j].data(), used);
    }
    equations.right[i] += DotProduct(weighted.data(), plain[kInterTapCount].data(), used);
  }
}

template <typename T>
class FilterChoice {
 public:
  explicit FilterChoice(WavefrontWork<T>& work)
      : work_(work), blocks_(std::size_t{work.motion_rows} * work.motion_columns) {}

  // Chooses for frames [begin, end), which share a group.
  void Run(std::uint32_t begin, std::uint32_t end, WavefrontGroup& group) {
    group_ = &group;
    // Prices are kept, because Assign weighs them again with the cost of naming filters.
    costs_.assign(blocks_ * work_.shape.frames * group.filter_count, {});
    bool busy = true;
    for (std::uint32_t round = 0; round <= work_.effort.fit_rounds; ++round) {
      const bool last = round == work_.effort.fit_rounds;
      equations_.assign(last ? 0 : group.filter_count, NormalEquations{});
      // Every other block is enough to fit filters to, if there are hundreds and most of them need
      // a filter. The last round visits all blocks.
      const bool many = blocks_ * (end - begin) >= kFitBlocksMin * work_.effort.fit_step;
      const std::uint32_t step = !last && many && busy ? work_.effort.fit_step : 1;
      visited_ = unforeseen_ = 0;
      for (std::uint32_t frame = begin; frame < end; ++frame) VisitFrame(frame, step, last);
      busy = unforeseen_ >= visited_ / 2;
      if (!last) Refit(begin > 0 ? kInterTapCount : kIntraTapCount);
    }
  }

  // Estimated cost of frames [begin, end) with blocks of 2^log2, choices into `filters`,
  // [frame - begin][rows of blocks][columns].
  std::uint64_t Assign(std::uint32_t begin, std::uint32_t end, std::uint32_t log2,
                       std::vector<std::uint8_t>& filters) const {
    const std::uint32_t parts = log2 == kMotionBlockLog2 ? 1 : 2;
    const std::uint32_t rows = ((work_.shape.rows - 1) >> log2) + 1;
    const std::uint32_t columns = ((work_.shape.columns - 1) >> log2) + 1;
    std::uint64_t total = 0;
    filters.clear();
    for (std::uint32_t frame = begin; frame < end; ++frame) {
      for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t column = 0; column < columns; ++column) {
          const std::size_t block = frame * blocks_ +
                                    std::size_t{row / parts} * work_.motion_columns +
                                    column / parts;
          // Blocks beyond the frame count as filter 0, as they do for the decoder.
          const int left = column > 0 ? filters.back() : 0;
          const int above = row > 0 ? filters[filters.size() - columns] : 0;
          std::uint32_t best_cost = 0xFFFF'FFFF;
          std::uint8_t best = 0;
          for (std::uint32_t filter = 0; filter < group_->filter_count; ++filter) {
            const auto& quarters = costs_[block * group_->filter_count + filter];
            std::uint32_t cost = parts == 1 ? quarters[0] + quarters[1] + quarters[2] + quarters[3]
                                            : quarters[row % 2 * 2 + column % 2];
            const auto same = static_cast<int>(filter);
            cost += same == left ? kStayCost : same == above ? 2 * kStayCost : kChangeCost;
            if (cost < best_cost) {
              best_cost = cost;
              best = static_cast<std::uint8_t>(filter);
            }
          }
          total += best_cost;
          filters.push_back(best);
        }
      }
    }
    return total;
  }

 private:
  // Prices all filters on every `step`-th block of a frame, staggered from row to row, and, unless
  // it is the last round, adds each block to the equations of its best filter.
  void VisitFrame(std::uint32_t frame, std::uint32_t step, bool last) {
    for (std::uint32_t row = 0; row < work_.motion_rows; ++row) {
      for (std::uint32_t column = (row + frame) % step; column < work_.motion_columns;
           column += step) {
        const std::size_t block =
            frame * blocks_ + std::size_t{row} * work_.motion_columns + column;
        // Loading gathers all neighbours once; each filter then costs one pass over 256 pixels.
        taps_->Load(work_, frame, row * kTapBlockSize, column * kTapBlockSize,
                    work_.motion[block]);
        std::uint32_t best_cost = 0xFFFF'FFFF;
        std::uint32_t best = 0;
        for (std::uint32_t filter = 0; filter < group_->filter_count; ++filter) {
          FilterErrors(*taps_, group_->filters[filter], work_.middle, errors_[filter]);
          const auto quarters = QuarterCosts<T>(errors_[filter]);
          costs_[block * group_->filter_count + filter] = quarters;
          const std::uint32_t cost = quarters[0] + quarters[1] + quarters[2] + quarters[3];
          if (cost < best_cost) {
            best_cost = cost;
            best = filter;
          }
        }
        ++visited_;
        // More than 8/256 of a bit a pixel: the block has something left to predict.
        if (best_cost > kTapBlockPixels * 8) ++unforeseen_;
        if (!last && best >= kStandardKept && best_cost > kTapBlockPixels * 8) {
          Accumulate(*taps_, errors_[best], work_.effort.fit_stride, equations_[best]);
        }
      }
    }
  }

  // Replaces each fitted filter by the solution of its equations, if it had blocks enough.
  void Refit(std::size_t taps) {
    for (std::uint32_t filter = kStandardKept; filter < group_->filter_count; ++filter) {
      // Fewer pixels would fit noise. The filter stays as it was.
      if (equations_[filter].pixels < 4 * kTapBlockPixels) continue;
      if (const auto fitted = Solve(equations_[filter], taps)) group_->filters[filter] = *fitted;
    }
  }

  WavefrontWork<T>& work_;
  const std::size_t blocks_;  // of a frame
  std::size_t visited_ = 0, unforeseen_ = 0;  // blocks of a round
  WavefrontGroup* group_ = nullptr;
  std::unique_ptr<BlockTaps<T>> taps_ = std::make_unique<BlockTaps<T>>();
  std::array<typename BlockTaps<T>::Errors, kWavefrontFiltersMax> errors_;
  std::vector<NormalEquations> equations_;
  std::vector<std::array<std::uint32_t, 4>> costs_;
};

}  // namespace

template <typename T>
void ChooseFilters(WavefrontWork<T>& work) {
  WavefrontParameters& parameters = work.parameters;
  SetStandard(StandardIntra(), work.effort.intra_filters, parameters.intra);
  const bool inter = work.shape.frames > 1;
  if (inter) SetStandard(StandardInter(), work.effort.inter_filters, parameters.inter);
  // The first frame and all others have filters of their own. Then both block sizes are priced with
  // the final filters, and the cheaper one is kept.
  // On the heap, as each holds the errors of 16 filters on a block.
  auto intra_choice = std::make_unique<FilterChoice<T>>(work);
  intra_choice->Run(0, 1, parameters.intra);
  auto inter_choice = std::make_unique<FilterChoice<T>>(work);
  if (inter) inter_choice->Run(1, work.shape.frames, parameters.inter);
  std::array<std::vector<std::uint8_t>, 2> filters;
  std::array<std::uint64_t, 2> totals{};
  for (std::uint32_t i = 0; i < 2; ++i) {
    std::vector<std::uint8_t> rest;
    totals[i] = intra_choice->Assign(0, 1, kMotionBlockLog2 - i, filters[i]);
    if (inter) totals[i] += inter_choice->Assign(1, work.shape.frames, kMotionBlockLog2 - i, rest);
    filters[i].insert(filters[i].end(), rest.begin(), rest.end());
  }
  // Smaller blocks cost time to read as well: they must save a sixty-fourth.
  const std::uint32_t finer = totals[1] + totals[0] / 64 < totals[0] ? 1 : 0;
  parameters.block_log2 = kMotionBlockLog2 - finer;
  work.block_rows = ((work.shape.rows - 1) >> parameters.block_log2) + 1;
  work.block_columns = ((work.shape.columns - 1) >> parameters.block_log2) + 1;
  work.blocks.resize(filters[finer].size());
  std::size_t at = 0;
  for (std::uint32_t frame = 0; frame < work.shape.frames; ++frame) {
    for (std::uint32_t row = 0; row < work.block_rows; ++row) {
      for (std::uint32_t column = 0; column < work.block_columns; ++column, ++at) {
        work.blocks[at] = work.motion[(std::size_t{frame} * work.motion_rows + (row >> finer)) *
                                          work.motion_columns +
                                      (column >> finer)];
        work.blocks[at].filter = filters[finer][at];
      }
    }
  }
}

template void ChooseFilters<std::uint8_t>(WavefrontWork<std::uint8_t>&);
template void ChooseFilters<std::uint16_t>(WavefrontWork<std::uint16_t>&);

}  // namespace forebay::compress
