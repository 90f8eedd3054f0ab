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

// A residual network, a vision transformer, a 3-D U-Net, a 3-D regression network, and a network
// that begins with a part without parameters and one with frozen ones.
std::vector<std::function<TinyModel()>> TinyModels();

// Takes {samples, 1, height, width} and has nothing to learn.
Model UntrainableModel();

}  // namespace forebay::train::testing
