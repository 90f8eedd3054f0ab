// Models of a few thousand parameters that have everything a layout can get wrong: skips over
// stages, tensors with several users, batch normalisation and dropout.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/exec/model.h"

namespace forebay::train::testing {

struct TinyModel {
  Model model;
  // {samples, ...} from a seed.
  std::function<torch::Tensor(std::uint64_t seed, std::uint32_t samples)> input;
  std::function<torch::Tensor(std::uint64_t seed, std::uint32_t samples)> target;
};

// A residual network, a vision transformer, a 3-D U-Net and a 3-D regression network.
std::vector<std::function<TinyModel()>> TinyModels();

}  // namespace forebay::train::testing
