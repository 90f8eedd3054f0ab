// TensorBytes: counts the bytes of LibTorch's tensors on one device, including the scratch memory
// of operators.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace c10 {
struct Allocator;
}  // namespace c10

namespace forebay::train {

// While an object for the processor exists, CPU tensors of the whole process are allocated through
// counters, each with a lock. A GPU's allocator counts by itself. Not thread-safe, but other
// threads may compute meanwhile; their tensors are counted, too.
class TensorBytes {
 public:
  explicit TensorBytes(const c10::Device& device = c10::Device(c10::kCPU));
  ~TensorBytes();  // what was counted may live on
  TensorBytes(const TensorBytes&) = delete;
  TensorBytes& operator=(const TensorBytes&) = delete;

  // Bytes of the tensors that are alive; of a processor, of those that were made while an object
  // existed.
  std::uint64_t Live() const;
  // The most bytes that were alive at once since the last BeginPeak.
  std::uint64_t Peak() const;
  void BeginPeak();

 private:
  c10::Device device_;
  c10::Allocator* before_ = nullptr;  // the processor's
};

}  // namespace forebay::train
