// Step 3 of encoding wavefront planes: the residuals of all frames under the chosen filters, row by
// row, in runs of blocks that share filter and motion. The first two columns of a frame, whose left
// neighbours follow rules of their own, are predicted pixel by pixel. Marks blocks whose residuals
// are all zero as skipped.
#include <algorithm>
#include <vector>

#include "compress/encode/wavefront/wavefront_work.h"
#include "compress/format/plane/wavefront_taps.h"

namespace forebay::compress {
namespace {

// Adds the current frame's taps of a run of pixels of one block. Columns 0 and 1 of the frame
// are left to PredictPixel.
template <typename T>
void AddCurrentTaps(const WavefrontFilter& filter, const std::array<const T*, 3>& lines,
                    std::uint32_t column, std::uint32_t count, std::int32_t middle,
                    WavefrontSum<T>* sums) {
  for (std::size_t tap = 0; tap < kIntraTapCount; ++tap) {
    const std::int32_t weight = filter.weights[tap];
    // A weight of 0 adds nothing to any pixel, so the pass over the run is left out. The standard
    // filters (filter_fit.cc) use few of the taps.
    if (weight == 0) continue;
    const TapOffset& offset = kCurrentTaps[tap];
    const T* from = lines[static_cast<std::size_t>(-offset.row)] + column + offset.column;
    for (std::uint32_t i = 0; i < count; ++i) {
      sums[i] = WrappingMultiplyAdd<WavefrontSum<T>>(sums[i], weight,
                                                     static_cast<std::int32_t>(from[i]) - middle);
    }
  }
}

// Predictions of one row, into `values`.
template <typename T>
class RowPredictor {
 public:
  RowPredictor(const WavefrontWork<T>& work, std::uint32_t frame) : work_(work), frame_(frame) {
    sums_.resize(work.shape.columns);
  }

  void Predict(std::uint32_t row, std::vector<std::int32_t>& values) {
    const PaddedFrame<const T>& current = work_.frames[frame_];
    // Has 8 pixels more on each side, as a frame has its margins.
    const T* const above = work_.above[frame_].data() + 8;
    const auto y = static_cast<std::int32_t>(row);
    const std::array<const T*, 3> lines = {current.Row(y), row > 0 ? current.Row(y - 1) : above,
                                           row > 1 ? current.Row(y - 2) : above};
    const WavefrontGroup& group = frame_ > 0 ? work_.parameters.inter : work_.parameters.intra;
    const std::uint32_t log2 = work_.parameters.block_log2;
    const WavefrontBlock* block =
        &work_.blocks[(std::size_t{frame_} * work_.block_rows + (row >> log2)) *
                      work_.block_columns];
    // The taps come in the format's order: earlier frames, then this one. Sums wrap, so the order
    // does not change the result.
    std::ranges::fill(sums_, WavefrontSum<T>{0});
    // Neighbouring blocks of one choice at once.
    std::uint32_t count = 0;
    for (std::uint32_t column = 0; column < current.columns; column += count, ++block) {
      count = std::min(1U << log2, current.columns - column);
      for (; column + count < current.columns && block[1] == block[0]; ++block) {
        count += std::min(1U << log2, current.columns - column - count);
      }
      const WavefrontFilter& filter = group.filters[block->filter & 0x0F];
      WavefrontSum<T>* const sums = &sums_[column];
      if (frame_ > 0) {
        AddTemporalTaps<T>(filter, *block, *work_.Previous(frame_), work_.Earlier(frame_), y,
                           static_cast<std::int32_t>(column), count, work_.middle, sums);
      }
      // Only a run that begins the row has columns 0 and 1.
      const std::uint32_t edge = column == 0 ? std::min<std::uint32_t>(2, count) : 0;
      for (std::uint32_t x = 0; x < edge; ++x) {
        values[x] = PredictEdge(filter, lines, x, sums[x]);
      }
      AddCurrentTaps<T>(filter, lines, column + edge, count - edge, work_.middle, sums + edge);
      for (std::uint32_t x = edge; x < count; ++x) {
        values[column + x] = WavefrontValue<WavefrontSum<T>>(sums[x], work_.middle);
      }
      if (filter.clamped) {
        // PredictEdge has confined the pixels of columns 0 and 1 already.
        for (std::uint32_t x = std::max(edge, column == 0 ? 1U : 0U); x < count; ++x) {
          const auto west = static_cast<std::int32_t>(lines[0][column + x - 1]);
          const auto north = static_cast<std::int32_t>(lines[1][column + x]);
          values[column + x] = std::clamp(values[column + x], std::min(west, north),
                                          std::max(west, north));
        }
      }
    }
  }

 private:
  // Predicts a pixel in column 0 or 1.
  std::int32_t PredictEdge(const WavefrontFilter& filter, const std::array<const T*, 3>& lines,
                           std::uint32_t x, WavefrontSum<T> sum) const {
    const auto taps =
        CurrentNeighbours(lines[0], lines[1], lines[2], static_cast<std::int32_t>(x),
                          static_cast<std::int32_t>(work_.shape.columns) - 1);
    return PredictPixel<WavefrontSum<T>>(filter, sum, taps, work_.middle);
  }

  const WavefrontWork<T>& work_;
  const std::uint32_t frame_;
  std::vector<WavefrontSum<T>> sums_;
};

}  // namespace

template <typename T>
void MarkSkippedBlocks(WavefrontWork<T>& work) {
  const std::uint32_t size = 1U << work.parameters.block_log2;
  WavefrontBlock* block = work.blocks.data();
  for (std::uint32_t frame = 0; frame < work.shape.frames; ++frame) {
    const T* const residuals = &work.residuals[frame * work.shape.frame_samples()];
    for (std::uint32_t row = 0; row < work.shape.rows; row += size) {
      for (std::uint32_t column = 0; column < work.shape.columns; column += size, ++block) {
        const std::uint32_t bottom = std::min(row + size, work.shape.rows);
        const std::uint32_t right = std::min(column + size, work.shape.columns);
        bool zero = true;
        for (std::uint32_t y = row; y < bottom && zero; ++y) {
          const T* const line = residuals + std::size_t{y} * work.shape.columns;
          zero = std::all_of(line + column, line + right, [](T value) { return value == 0; });
        }
        // Nothing is coded for the pixels of such a block.
        if (zero) block->filter |= kWavefrontSkip;
      }
    }
  }
}

template <typename T>
void ComputeResiduals(WavefrontWork<T>& work) {
  work.residuals.resize(work.shape.frames * work.shape.frame_samples());
  const auto mask = static_cast<std::int32_t>((1U << work.shape.bits) - 1);
  std::vector<std::int32_t> values(work.shape.columns);
  T* out = work.residuals.data();
  for (std::uint32_t frame = 0; frame < work.shape.frames; ++frame) {
    RowPredictor<T> predictor(work, frame);
    for (std::uint32_t row = 0; row < work.shape.rows; ++row) {
      predictor.Predict(row, values);
      const T* const line = work.frames[frame].Row(static_cast<std::int32_t>(row));
      for (std::uint32_t x = 0; x < work.shape.columns; ++x) {
        // Modulo 2^bits: the decoder adds with the same mask, so a residual needs no bit for its
        // sign.
        *out++ = static_cast<T>((line[x] - values[x]) & mask);
      }
    }
  }
  MarkSkippedBlocks(work);
}

template void MarkSkippedBlocks<std::uint8_t>(WavefrontWork<std::uint8_t>&);
template void MarkSkippedBlocks<std::uint16_t>(WavefrontWork<std::uint16_t>&);
template void ComputeResiduals<std::uint8_t>(WavefrontWork<std::uint8_t>&);
template void ComputeResiduals<std::uint16_t>(WavefrontWork<std::uint16_t>&);

}  // namespace forebay::compress
