// What numerics/ does with plain floats, by LibTorch on tensors: gradients of micro-batches summed
// in a tree, their norm, the optimisers. For a GPU, where all of it stays in its memory; on a
// processor every float comes out bit for bit as numerics/ has it, but the norm, which is near it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/optimiser.h"

namespace forebay::train {

// As GradientSum, for flat tensors of one device. Not thread-safe. May throw.
class TensorGradientSum {
 public:
  TensorGradientSum(std::size_t floats, SumOrder order, const torch::Device& device);

  // A piece of the next micro-batch's gradient, of any shape. All pieces of one come before Next.
  void Add(std::size_t offset, const torch::Tensor& piece);
  void AddNothing(std::size_t offset, std::size_t floats);
  void Next();
  // The sum over all; none are left then. Without any: zeros.
  torch::Tensor Finish();

  std::size_t micro_batches() const { return micro_batches_; }

 private:
  torch::Tensor Leaf(std::size_t offset, std::size_t floats);

  std::int64_t floats_;
  SumOrder order_;
  torch::Device device_;
  std::size_t micro_batches_ = 0;
  torch::Tensor leaf_;                // the next micro-batch's
  std::vector<torch::Tensor> nodes_;  // complete subtrees, largest first
};

// As UpdateWeights. All are flat, of one length, and on one device. May throw.
void UpdateTensors(const OptimiserOptions& options, const UpdateStep& step,
                   const torch::Tensor& weights, const torch::Tensor& gradient,
                   const std::vector<torch::Tensor>& states);

// The sum of squares in double, in an order that depends on the device and the length alone. Waits
// for the device. May throw.
double SquaredNorm(const torch::Tensor& values);

}  // namespace forebay::train
