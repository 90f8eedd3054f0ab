// LeNet: two convolutions and two linear layers for small one-channel images (LeCun et al.,
// "Gradient-based learning applied to document recognition", 1998; with ReLU and max pooling).
#pragma once

#include <cstdint>

#include "trainer/exec/model.h"

namespace forebay::train {

inline constexpr std::int64_t kLeNetSide = 28;  // pixels

struct LeNetOptions {
  std::int64_t channels = 16;
  std::int64_t hidden = 128;
  std::int64_t classes = 10;
};

// The parts conv1, conv2, linear1, linear2: {n, 1, 28, 28} -> {n, classes} logits. No dropout and
// no batch statistics.
std::vector<ModelPart> LeNetParts(const LeNetOptions& options);

}  // namespace forebay::train
