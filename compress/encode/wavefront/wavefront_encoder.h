// Encodes planes for the wavefront decoder: motion, filters, contexts, rANS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/format/plane/plane_shape.h"
#include "compress/format/plane/predictor.h"

namespace forebay::compress {

// How hard to look. The output is a pure function of input and effort, on every processor.
struct WavefrontEffort {
  std::uint32_t fit_rounds = 3;     // of fitting filters to their blocks; 0: standard filters
  std::uint32_t fit_stride = 2;     // every so many rows of a block are fitted to
  std::uint32_t fit_step = 2;       // every so many blocks, where there are many
  std::int32_t motion_reach = 8;    // pixels; 0: no motion
  std::uint32_t intra_filters = 8, inter_filters = 8;
};

// The body of a wavefront-coded chunk, kind byte left out. `samples` is dense as `shape` says, with
// zeros above the valid bits; at least one frame.
std::vector<std::byte> EncodeWavefront(const PlaneShape& shape, std::span<const std::byte> samples,
                                       const WavefrontEffort& effort);

// As EncodeWavefront, for samples of up to 8 bits: the plain body, and the body of learned planes
// without kind and id, which is absent if the predictor would correct no block.
struct LearnedBodies {
  std::vector<std::byte> plain;
  std::optional<std::vector<std::byte>> learned;
};
LearnedBodies EncodeLearned(const PlaneShape& shape, std::span<const std::byte> samples,
                            const WavefrontEffort& effort, const Predictor& predictor);

}  // namespace forebay::compress
