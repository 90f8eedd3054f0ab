// Counts the bytes of LibTorch's tensors, scratch of its operators included.
#pragma once

#include <cstdint>

namespace forebay::train::testing {

// From the first call of Begin on, all CPU tensors of the process are allocated through counters.
// Not for several measurements at once.
class TensorBytes {
 public:
  // Peaks count from here.
  static void Begin();
  static std::uint64_t Live();
  static std::uint64_t Peak();  // since Begin
};

}  // namespace forebay::train::testing
