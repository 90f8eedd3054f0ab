// Samples and targets made of a seed, for tests and benchmarks of the models.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "trainer/models/model_request.h"

namespace forebay::train::testing {

// Standard normal numbers of shape (samples, ...shape); the same ones for the same seed.
torch::Tensor NormalSamples(const std::vector<std::int64_t>& shape, std::uint32_t samples,
                            std::uint64_t seed);

// What `input` decides, so that it can be learnt: of a classifier the index of the largest of a
// sample's first `outputs` numbers, of a segmentation each voxel's class by its first channel
// (0, 1 or 2, cut at -0.5 and 0.5), otherwise tanh of a sample's first `outputs` numbers.
torch::Tensor LearnableTargets(const ModelSizes& sizes, const torch::Tensor& input);

}  // namespace forebay::train::testing
