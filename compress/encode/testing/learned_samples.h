// Test support: learned predictors and bodies that no training gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/plane/plane_shape.h"
#include "compress/format/plane/predictor.h"

namespace forebay::compress {

// Random weights, biases and shifts that keep most sums between the clamps. `intra` and `inter` are
// the numbers of inputs and of each layer's outputs, or empty.
std::shared_ptr<const Predictor> RandomPredictor(std::uint32_t seed,
                                                 const std::vector<std::uint32_t>& intra,
                                                 const std::vector<std::uint32_t>& inter);

// An inter net of weights of -128 and 127, of the largest biases and of any shift.
std::shared_ptr<const Predictor> ExtremePredictor(std::uint32_t seed,
                                                  const std::vector<std::uint32_t>& inter);

// A frame in which no filter is right and a network of three hidden values is: each pixel is the
// larger of west and north less 0 to 8; and that network, for intra frames or for both kinds.
std::vector<std::byte> MakeLargerOfTwo(std::uint32_t rows, std::uint32_t columns,
                                       std::uint32_t seed);
std::shared_ptr<const Predictor> LargerOfTwoPredictor(bool inter = false);

// A whole body, kind and id included, in which the predictor corrects every block that it can and
// a few that it need not.
std::vector<std::byte> EncodeEveryBlockLearned(const PlaneShape& shape,
                                               std::span<const std::byte> samples,
                                               const Predictor& predictor);

}  // namespace forebay::compress
