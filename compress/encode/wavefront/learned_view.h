// The inputs of a learned predictor for each pixel of a chunk that is being encoded, for the
// encoder and the trainer. Plane codecs are lossless, so the encoder knows all values that the
// decoder will know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/encode/wavefront/wavefront_work.h"
#include "compress/format/plane/learned_inputs.h"

namespace forebay::compress {

// `work` has chosen filters, and the residuals of the filters alone. Borrows it.
class LearnedView {
 public:
  explicit LearnedView(const WavefrontWork<std::uint8_t>& work);

  // What the pixel's filter predicts.
  std::uint8_t Value(std::uint32_t frame, std::uint32_t row, std::uint32_t column) const;

  // The pixel less that.
  std::int8_t Error(std::uint32_t frame, std::uint32_t row, std::uint32_t column) const;

  // Writes the kIntraInputs or kInterInputs inputs of a pixel, each 128 larger, into every
  // `stride`-th byte of `to`.
  void SetInputs(std::uint32_t frame, std::uint32_t row, std::uint32_t column,
                 std::size_t stride, std::uint8_t* to) const;

 private:
  std::size_t At(std::uint32_t frame, std::uint32_t row, std::uint32_t column) const {
    return (std::size_t{frame} * work_.shape.rows + row) * work_.shape.columns + column;
  }

  const WavefrontWork<std::uint8_t>& work_;
  // [frames][rows][columns]
  std::vector<std::uint8_t> values_;
  std::vector<std::int8_t> errors_;
  std::vector<std::uint8_t> displaced_, before_;
};

}  // namespace forebay::compress
