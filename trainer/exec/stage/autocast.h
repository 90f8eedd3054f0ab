// AutocastScope: mixed precision in forward passes. All code that depends on LibTorch's version is
// in the .cc.
#pragma once

#include <torch/types.h>

#include "trainer/numerics/precision.h"

namespace forebay::train {

// While it exists, operators that gain by it (products, convolutions) compute in `precision` on
// this thread and kind of device, and cast weights for that; operators that need it compute in
// single precision. Outputs have the type that they were computed in. Does nothing for kFp32.
//
// Scopes do not nest. Casts of weights are kept until the end of the scope only: a cast that
// outlived a part's forward pass would connect its graph with another part's, and be out of date
// after the update.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision, torch::DeviceType device = torch::kCPU);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool casts_;
  torch::DeviceType device_;
};

}  // namespace forebay::train
