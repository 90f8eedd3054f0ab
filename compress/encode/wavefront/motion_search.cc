// Step 1 of encoding wavefront planes: integer motion of blocks of 16 x 16 pixels, by the sum of
// absolute differences to the previous frame. Candidates are the vectors of neighbouring blocks and
// rings around no motion; from the best of them the search walks downhill. A block that hardly
// differs from the previous frame in place is not searched.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "compress/encode/wavefront/filter_kernels.h"
#include "compress/encode/wavefront/wavefront_work.h"

namespace forebay::compress {
namespace {

// What a vector that differs from its neighbour's costs in side information, and what any motion
// costs, in units of absolute difference.
constexpr std::uint32_t kVectorCost = 48;
constexpr std::uint32_t kMotionCost = 24;

template <typename T>
class BlockSearch {
 public:
  BlockSearch(const PaddedFrame<const T>& current, const PaddedFrame<const T>& previous,
              std::uint32_t row, std::uint32_t column, std::int32_t reach)
      : current_(current),
        previous_(previous),
        row_(static_cast<std::int32_t>(row)),
        column_(static_cast<std::int32_t>(column)),
        rows_(static_cast<std::int32_t>(std::min(1U << kMotionBlockLog2, current.rows - row))),
        columns_(static_cast<std::int32_t>(
            std::min(1U << kMotionBlockLog2, current.columns - column))),
        reach_(reach) {}

  // Keeps `candidate` if its difference plus `cost` is the smallest so far.
  void Try(WavefrontBlock candidate, std::uint32_t cost) {
    // Beyond the reach the frame's margin might end, and the format allows no larger motion.
    if (std::abs(candidate.motion_row) > reach_ || std::abs(candidate.motion_column) > reach_) {
      return;
    }
    const std::uint32_t total = Difference(candidate) + cost;
    if (total < best_cost_) {
      best_cost_ = total;
      best_ = candidate;
    }
  }

  // Walks to a neighbouring vector as long as that lowers the cost; each step changes the best.
  void Refine() {
    static constexpr std::array<std::array<int, 2>, 8> kAround = {
        {{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {-1, -1}, {-1, 1}, {1, -1}, {1, 1}}};
    // A walk from end to end takes no more steps than this. Equal costs cannot make it go in
    // circles, because a step must lower the cost.
    for (int round = 0; round < 2 * kWavefrontMotionMax; ++round) {
      const WavefrontBlock from = best_;
      for (const auto& [row, column] : kAround) {
        Try({.motion_row = static_cast<std::int8_t>(from.motion_row + row),
             .motion_column = static_cast<std::int8_t>(from.motion_column + column)},
            kVectorCost + kMotionCost);
      }
      if (from.motion_row == best_.motion_row && from.motion_column == best_.motion_column) return;
    }
  }

  const WavefrontBlock& best() const { return best_; }
  std::uint32_t best_cost() const { return best_cost_; }
  std::uint32_t pixels() const { return static_cast<std::uint32_t>(rows_ * columns_); }

 private:
  std::uint32_t Difference(const WavefrontBlock& candidate) const {
    std::uint32_t sum = 0;
    // Whole blocks have a vector kernel; those at the right edge stop once they cannot win.
    if (columns_ == 16) {
      return BlockDifference(current_.Row(row_) + column_, current_.stride,
                             previous_.Row(row_ + candidate.motion_row) + column_ +
                                 candidate.motion_column,
                             previous_.stride, static_cast<std::size_t>(rows_));
    }
    for (std::int32_t y = 0; y < rows_; ++y) {
      const T* here = current_.Row(row_ + y) + column_;
      const T* there = previous_.Row(row_ + y + candidate.motion_row) + column_ +
                       candidate.motion_column;
      for (std::int32_t x = 0; x < columns_; ++x) {
        sum += static_cast<std::uint32_t>(std::abs(here[x] - there[x]));
      }
      if (sum >= best_cost_) return sum;
    }
    return sum;
  }

  const PaddedFrame<const T>& current_;
  const PaddedFrame<const T>& previous_;
  std::int32_t row_, column_, rows_, columns_, reach_;
  WavefrontBlock best_;
  std::uint32_t best_cost_ = 0xFFFF'FFFF;
};

}  // namespace

template <typename T>
void SearchMotion(WavefrontWork<T>& work) {
  const std::size_t frame_blocks = std::size_t{work.motion_rows} * work.motion_columns;
  work.motion.assign(frame_blocks * work.shape.frames, WavefrontBlock{});
  if (work.effort.motion_reach == 0) return;
  for (std::uint32_t t = 1; t < work.shape.frames; ++t) {
    WavefrontBlock* block = &work.motion[t * frame_blocks];
    for (std::uint32_t row = 0; row < work.motion_rows; ++row) {
      for (std::uint32_t column = 0; column < work.motion_columns; ++column, ++block) {
        BlockSearch<T> search(work.frames[t], work.frames[t - 1], row << kMotionBlockLog2,
                              column << kMotionBlockLog2, work.effort.motion_reach);
        search.Try({}, 0);
        // Less than one unit of difference a pixel: motion could gain next to nothing.
        if (search.best_cost() > search.pixels()) {
          // Neighbours in the frame and the same block of the previous frame often move alike. The
          // left one's vector costs least in the side information, which codes differences to it.
          if (column > 0) search.Try(block[-1], kMotionCost);
          if (row > 0) search.Try(*(block - work.motion_columns), kMotionCost + kVectorCost / 2);
          if (t > 1) search.Try(*(block - frame_blocks), kMotionCost + kVectorCost);
          // Rings of eight vectors, coarse, so that Refine starts near the minimum.
          for (int ring = 2; ring <= work.effort.motion_reach; ring += 3) {
            for (std::size_t side = 0; side < 8; ++side) {
              static constexpr std::array<int, 8> kRows = {-1, -1, -1, 0, 0, 1, 1, 1};
              static constexpr std::array<int, 8> kColumns = {-1, 0, 1, -1, 1, -1, 0, 1};
              search.Try({.motion_row = static_cast<std::int8_t>(kRows[side] * ring),
                          .motion_column = static_cast<std::int8_t>(kColumns[side] * ring)},
                         kMotionCost + kVectorCost);
            }
          }
          search.Refine();
        }
        *block = search.best();
      }
    }
  }
}

template void SearchMotion<std::uint8_t>(WavefrontWork<std::uint8_t>&);
template void SearchMotion<std::uint16_t>(WavefrontWork<std::uint16_t>&);

}  // namespace forebay::compress
