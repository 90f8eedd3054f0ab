// TensorBytes: counts the bytes of LibTorch's CPU tensors, including the scratch memory of
// operators.
#pragma once

#include <cstdint>

namespace c10 {
struct Allocator;
}  // namespace c10

namespace forebay::train {

// While an object exists, CPU tensors of the whole process are allocated through counters, each
// with a lock. Not thread-safe, but other threads may compute meanwhile; their tensors are counted,
// too.
class TensorBytes {
 public:
  TensorBytes();
  ~TensorBytes();  // what was counted may live on
  TensorBytes(const TensorBytes&) = delete;
  TensorBytes& operator=(const TensorBytes&) = delete;

  // Bytes of the tensors that are alive and were made while an object existed.
  std::uint64_t Live() const;
  // The most bytes that were alive at once since the last BeginPeak.
  std::uint64_t Peak() const;
  void BeginPeak();

 private:
  c10::Allocator* before_;
};

}  // namespace forebay::train
