// Metric: what an evaluation is judged by.
#pragma once

#include <string_view>

namespace forebay::train {

// Accuracy of the first guess, where a model's loss says nothing else.
struct Metric {
  std::string_view name = "accuracy";  // a literal; what files and lines call it
  bool higher_is_better = true;

  bool Better(double value, double than) const {
    return higher_is_better ? value > than : value < than;
  }
  bool Reaches(double value, double target) const {
    return higher_is_better ? value >= target : value <= target;
  }
};

}  // namespace forebay::train
