// FlopCount: the floating-point operations of matrix products and convolutions.
#pragma once

namespace forebay::train {

// While it exists, it counts the operations of this thread's matrix products and convolutions from
// their shapes, backward passes included. A multiplication and an addition are two operations.
// Other operators are limited by memory and do not count, as is usual in utilisations (Chowdhery et
// al., PaLM, 2022). Operators take some microseconds longer meanwhile. One object at a time per
// thread.
class FlopCount {
 public:
  FlopCount();
  ~FlopCount();
  FlopCount(const FlopCount&) = delete;
  FlopCount& operator=(const FlopCount&) = delete;

  double flops() const;

 private:
  unsigned long handle_ = 0;
};

}  // namespace forebay::train
