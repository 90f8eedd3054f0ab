// What a predictor gains on planes that it was not trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "compress/format/plane/predictor.h"
#include "compress/train/chunk_planes.h"
#include "proto/contract/result.h"

namespace forebay::compress {

struct HeldOutGain {
  std::uint64_t planes = 0;
  std::uint64_t raw_bytes = 0, dense_bytes = 0, learned_bytes = 0;  // without the model's own
  std::uint64_t model_bytes = 0;
  double decode_s = 0;  // of the learned bodies, by the fastest kernel

  // Dense size over learned size, less one. Meaningless without planes.
  double without_model() const;
  double with_model() const;
};

// Encodes all of `stacks` both ways, and decodes what the predictor corrected: on the fastest
// kernel, or on every one that this processor has. Errors: kInternal where one does not give back
// what went in.
Result<HeldOutGain> MeasureGain(std::span<const PlaneStack> stacks,
                                const std::shared_ptr<const Predictor>& predictor,
                                bool all_kernels);

}  // namespace forebay::compress
