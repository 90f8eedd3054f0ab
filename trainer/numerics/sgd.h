// SGD with momentum (Sutskever et al., 2013, as PyTorch writes it) and coupled weight decay.
#pragma once

#include <array>
#include <string_view>

#include "trainer/numerics/optimiser.h"

namespace forebay::train {

// A formula: optimiser_formulas.h describes the members.
struct Sgd {
  static constexpr std::string_view kName = "sgd";
  static constexpr std::array<std::string_view, 1> kStates = {"momentum"};

  struct Factors {
    float rate;
    float decay;
    float scale;
    float momentum;
  };

  static Factors FactorsOf(const OptimiserOptions& options, const UpdateStep& step) {
    return {.rate = static_cast<float>(step.learning_rate),
            .decay = static_cast<float>(step.weight_decay),
            .scale = static_cast<float>(step.gradient_scale),
            .momentum = static_cast<float>(options.momentum)};
  }

  template <typename Value>
  static void Update(const Factors& by, Value& weight, const Value& gradient, Value& velocity) {
    velocity *= by.momentum;
    velocity += gradient * by.scale + weight * by.decay;
    weight -= velocity * by.rate;
  }
};

}  // namespace forebay::train
