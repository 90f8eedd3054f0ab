// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), with PyTorch's
// names of its states.
#pragma once

#include <array>
#include <cmath>
#include <string_view>

#include "trainer/numerics/optimiser.h"

namespace forebay::train {

// A formula: optimiser_formulas.h describes the members.
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  static constexpr std::array<std::string_view, 2> kStates = {"exp_avg", "exp_avg_sq"};

  struct Factors {
    float rate;  // the learning rate, divided by the bias correction of the mean
    float root;  // corrects the bias of the square's root, which is multiplied by it
    float keep;  // the share of a weight that decay leaves
    float scale;
    float beta1;
    float new1;  // 1 - beta1
    float beta2;
    float new2;  // 1 - beta2
    float epsilon;
  };

  static Factors FactorsOf(const OptimiserOptions& options, const UpdateStep& step) {
    const auto number = static_cast<double>(step.number);
    const double mean_bias = 1.0 - std::pow(options.beta1, number);
    const double square_bias = 1.0 - std::pow(options.beta2, number);
    const auto beta1 = static_cast<float>(options.beta1);
    const auto beta2 = static_cast<float>(options.beta2);
    return {.rate = static_cast<float>(step.learning_rate / mean_bias),
            .root = static_cast<float>(1.0 / std::sqrt(square_bias)),
            .keep = static_cast<float>(1.0 - step.learning_rate * step.weight_decay),
            .scale = static_cast<float>(step.gradient_scale),
            .beta1 = beta1,
            .new1 = 1.0F - beta1,
            .beta2 = beta2,
            .new2 = 1.0F - beta2,
            .epsilon = static_cast<float>(options.epsilon)};
  }

  template <typename Value>
  static void Update(const Factors& by, Value& weight, const Value& gradient, Value& mean,
                     Value& square) {
    const Value slope = gradient * by.scale;
    mean *= by.beta1;
    mean += slope * by.new1;
    square *= by.beta2;
    square += slope * slope * by.new2;
    weight *= by.keep;
    weight -= mean * by.rate / (Root(square) * by.root + by.epsilon);
  }
};

}  // namespace forebay::train
