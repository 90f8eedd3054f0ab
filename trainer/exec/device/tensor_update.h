// Does by LibTorch, on tensors, what numerics/ does with plain floats: sums the gradients of
// micro-batches, takes their norm, and applies the optimisers' formulas. Meant for a GPU, whose
// memory nothing leaves. On a processor all results are bit for bit those of numerics/, except the
// norm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <torch/types.h>

#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/optimiser.h"

namespace forebay::train {

// The memory of TensorGradientSum: gradients are flat tensors on one device. A piece may have any
// shape.
class TensorMemory {
 public:
  using Buffer = torch::Tensor;
  using Piece = torch::Tensor;

  explicit TensorMemory(const torch::Device& device) : device_(device) {}

  Buffer Make(std::size_t floats) const;
  void Clear(Buffer& buffer) const;
  void Put(const Piece& piece, std::size_t offset, Buffer& buffer) const;
  void AddThrough(const Piece& piece, std::size_t offset, std::span<Buffer* const> nodes) const;
  void AddWhole(const Buffer& addend, Buffer& sum) const;
  template <typename Take>
  void ForZeros(std::size_t floats, const Take& take) const {
    take(0, torch::zeros({static_cast<std::int64_t>(floats)}, device_));
  }

 private:
  torch::Device device_;
};

using TensorGradientSum = GradientSumOver<TensorMemory>;

// Tensors that one step updates together, in the same order in each list: flat, on one device.
struct TensorsToUpdate {
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> gradients;
  std::vector<std::vector<torch::Tensor>> states;  // for each state of the optimiser
};

// Updates weights and states in place, as UpdateWeights does. May throw.
void UpdateTensors(const OptimiserOptions& options, const UpdateStep& step,
                   const TensorsToUpdate& tensors);

// The sum of squares in double, in an order that depends on the device and the length alone. Waits
// for the device. May throw.
double SquaredNorm(const torch::Tensor& values);

// Whether no value is infinite or not a number. Waits for the device. May throw.
bool IsFinite(const torch::Tensor& values);

}  // namespace forebay::train
