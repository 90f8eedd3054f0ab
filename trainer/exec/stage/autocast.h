// AutocastScope: forward passes of mixed precision. All that depends on LibTorch's version is in
// the .cc.
#pragma once

#include <torch/types.h>

#include "trainer/numerics/precision.h"

namespace forebay::train {

// While it lives, operators of one kind of device on this thread that gain by it (products,
// convolutions) compute in `precision`, casting weights on the way, and those that need it in
// single precision. What they hand on has the type that they computed in. Nothing for kFp32.
// Scopes do not nest. Casts are kept until its end only: one that outlived a part's forward pass
// would tie its graph to another's, and outlive the next update.
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
