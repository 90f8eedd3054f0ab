// FlopCount: the floating-point operations of matrix products and convolutions.
#pragma once

namespace forebay::train {

// While it lives, counts what this thread computes of them, backward passes included, from the
// shapes: a multiplication and an addition are two. Other operators, which are limited by memory,
// do not count, as is usual in utilisations (Chowdhery et al., PaLM, 2022). Operators take some
// microseconds longer meanwhile. One at a time per thread.
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
