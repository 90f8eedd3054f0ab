// Metric: what an evaluation measures, and which direction is better.
#pragma once

#include <string_view>

namespace forebay::train {

// The default is for classifiers: the share of samples whose most likely class is right.
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
