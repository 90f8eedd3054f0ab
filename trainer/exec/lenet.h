// LeNet: two convolutions and two linear layers for small images (LeCun et al.,
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
  // Of an image: colours and pixels, four at least.
  std::int64_t inputs = 1;
  std::int64_t height = kLeNetSide;
  std::int64_t width = kLeNetSide;
};

// The parts conv1, conv2, linear1, linear2: {n, inputs, height, width} -> {n, classes} logits. No
// dropout and no batch statistics.
std::vector<ModelPart> LeNetParts(const LeNetOptions& options);

}  // namespace forebay::train
