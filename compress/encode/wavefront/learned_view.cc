// What a learned predictor sees of each pixel while a chunk is encoded: the filters' values, their
// errors and the displaced earlier frames, computed once for all pixels. Codecs are lossless, so
// the encoder knows what the decoder will know. Used by learned_choice.cc (step 4), and by the
// trainer for its examples.
#include "compress/encode/wavefront/learned_view.h"

#include <array>

#include "compress/format/plane/wavefront_taps.h"

namespace forebay::compress {

LearnedView::LearnedView(const WavefrontWork<std::uint8_t>& work) : work_(work) {
  const std::size_t samples = work.residuals.size();
  const std::uint32_t mask = (1U << work.shape.bits) - 1;
  values_.resize(samples);
  errors_.resize(samples);
  displaced_.resize(samples);
  before_.resize(samples);
  const std::uint32_t log2 = work.parameters.block_log2;
  for (std::uint32_t frame = 0; frame < work.shape.frames; ++frame) {
    for (std::uint32_t row = 0; row < work.shape.rows; ++row) {
      const std::size_t line = At(frame, row, 0);
      const std::uint8_t* const pixels = work.frames[frame].Row(static_cast<std::int32_t>(row));
      for (std::uint32_t column = 0; column < work.shape.columns; ++column) {
        const std::size_t at = line + column;
        // The residual is the pixel less the prediction modulo 2^bits, so the prediction follows
        // from both.
        values_[at] = static_cast<std::uint8_t>((pixels[column] - work.residuals[at]) & mask);
        errors_[at] = LearnedError(pixels[column], values_[at]);
      }
      // No network of first frames looks at an earlier frame.
      if (frame == 0) continue;
      const WavefrontBlock* const blocks =
          &work.blocks[(std::size_t{frame} * work.block_rows + (row >> log2)) * work.block_columns];
      const auto y = static_cast<std::int32_t>(row);
      const PaddedFrame<const std::uint8_t>* const earlier = work.Earlier(frame);
      DisplaceRow(*work.Previous(frame), blocks, log2, 1, y, &displaced_[line]);
      DisplaceRow(earlier != nullptr ? *earlier : *work.Previous(frame), blocks, log2,
                  earlier != nullptr ? 2 : 1, y, &before_[line]);
    }
  }
}

std::uint8_t LearnedView::Value(std::uint32_t frame, std::uint32_t row,
                                std::uint32_t column) const {
  return values_[At(frame, row, column)];
}

std::int8_t LearnedView::Error(std::uint32_t frame, std::uint32_t row,
                               std::uint32_t column) const {
  return errors_[At(frame, row, column)];
}

void LearnedView::SetInputs(std::uint32_t frame, std::uint32_t row, std::uint32_t column,
                            std::size_t stride, std::uint8_t* to) const {
  const PaddedFrame<const std::uint8_t>& current = work_.frames[frame];
  // The row has 8 pixels more on each side, for neighbours beyond the frame's edges.
  const std::uint8_t* const above = work_.above[frame].data() + 8;
  const auto y = static_cast<std::int32_t>(row);
  const auto x = static_cast<std::int32_t>(column);
  // The rows above a frame lie in memory of their own, not in front of its first row.
  const std::uint8_t* const up = row > 0 ? current.Row(y - 1) : above;
  const std::uint8_t* const up2 = row > 1 ? current.Row(y - 2) : above;
  const auto taps = CurrentNeighbours(current.Row(y), up, up2, x,
                                      static_cast<std::int32_t>(work_.shape.columns) - 1);
  const std::size_t first = At(frame, 0, 0);
  LearnedFrame known{.rows = work_.shape.rows, .columns = work_.shape.columns,
                     .errors = &errors_[first]};
  if (frame > 0) {
    known.displaced = &displaced_[first];
    known.before = &before_[first];
    known.previous_errors = &errors_[At(frame - 1, 0, 0)];
  }
  SetLearnedInputs(known, taps, values_[first + std::size_t{row} * work_.shape.columns + column],
                   y, x, stride, to);
}

}  // namespace forebay::compress
