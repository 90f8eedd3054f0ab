// StageGradient: the gradient of a stage's parts, from the backward passes to the update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/exec/device/tensor_update.h"
#include "trainer/exec/stage/held_part.h"
#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/optimiser.h"

namespace forebay::train {

// Which code computes sums and updates. On a GPU it is always kLibTorch. On a processor both give
// the same bits.
enum class UpdateArithmetic : std::uint8_t { kPlain, kLibTorch };

// The gradient is summed over micro-batches, reduced over replicas, and used for one update. A sum
// that LibTorch computed is reduced in the host's memory. Not thread-safe. May throw.
class StageGradient {
 public:
  // `parts` outlive it.
  StageGradient(std::vector<HeldPart*> parts, SumOrder order, UpdateArithmetic arithmetic,
                const torch::Device& device);

  void BeginStep() {
    reduced_ = 0;
    tensor_sum_ = torch::Tensor();  // of a step that was left out
  }
  // Takes the gradients of part `at` after its backward pass.
  void Take(std::size_t at);
  // All parts of a micro-batch are taken. With the last of `micro_batches` the sum is complete.
  void EndMicroBatch(std::uint32_t micro_batches);

  // Returns the next floats of the sum, at most so many, to be summed over replicas in place.
  std::span<float> NextBucket(std::size_t floats);

  // The squared norm of part `at`. Call it when all reductions are done.
  double SquaredNormOf(std::size_t at);
  // Whether the gradients of all parts are finite. Call it when all reductions are done.
  bool IsFinite();
  // Updates every part once.
  void Update(const OptimiserOptions& options, const UpdateStep& step);

 private:
  // The sum; the first call brings back what was reduced.
  const torch::Tensor& Whole();
  torch::Tensor TensorOf(std::size_t at);  // a part's share of it
  std::span<const float> FloatsOf(std::size_t at) const;

  std::vector<HeldPart*> parts_;
  std::vector<std::size_t> offsets_;  // of the parts, in floats, and the end
  GradientSum floats_;
  std::optional<TensorGradientSum> tensors_;  // with kLibTorch
  std::span<float> sum_;                      // in plain memory: all there is, or what is reduced
  torch::Tensor tensor_sum_;
  torch::Tensor reduced_copy_;  // of tensor_sum_, on the host, until it is brought back
  std::size_t reduced_ = 0;     // floats whose reduction has begun
};

}  // namespace forebay::train
