// TensorBytes: counts the bytes of LibTorch's tensors, scratch of its operators included.
#pragma once

#include <cstdint>

namespace c10 {
struct Allocator;
}  // namespace c10

namespace forebay::train {

// While one lives, CPU tensors of the whole process are allocated through counters, which takes a
// lock each time. Not thread-safe, but others may compute meanwhile: their tensors count, too.
class TensorBytes {
 public:
  TensorBytes();
  ~TensorBytes();  // what was counted may live on
  TensorBytes(const TensorBytes&) = delete;
  TensorBytes& operator=(const TensorBytes&) = delete;

  // Of tensors that were made while one lived.
  std::uint64_t Live() const;
  // Since the last BeginPeak.
  std::uint64_t Peak() const;
  void BeginPeak();

 private:
  c10::Allocator* before_;
};

}  // namespace forebay::train
