// Layers whose result does not depend on the layout: use these in parts instead of torch's own
// dropout and batch normalisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "trainer/exec/model.h"

namespace forebay::train {

// Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate). Which elements
// are zeroed depends only on seed, step, micro-batch, part and the number of the draw in the part.
torch::Tensor Dropout(const torch::Tensor& input, double rate, Pass& pass);

// Batch normalisation over a micro-batch (Ioffe and Szegedy, 2015). Dimension 1 is the channel.
// Forward never changes running statistics: the owner of the BatchStatistics updates them once per
// step, with each micro-batch in order.
class BatchNorm final : public torch::nn::Module {
 public:
  explicit BatchNorm(std::int64_t channels, double momentum = 0.1, double epsilon = 1e-5);
  torch::Tensor Forward(const torch::Tensor& input, Pass& pass);

  std::int64_t channels() const { return channels_; }
  torch::Device device() const { return running_mean_.device(); }
  double momentum() const { return momentum_; }
  const torch::Tensor& running_mean() const { return running_mean_; }
  const torch::Tensor& running_variance() const { return running_variance_; }

 private:
  std::int64_t channels_;
  double momentum_;
  double epsilon_;
  torch::Tensor weight_;
  torch::Tensor bias_;
  torch::Tensor running_mean_;
  torch::Tensor running_variance_;
};

// Collects the batch statistics of the normalisation layers of one stage, micro-batch by
// micro-batch.
class BatchStatistics {
 public:
  // Finds the normalisation layers of `parts`, in the order of their registration.
  explicit BatchStatistics(const std::vector<std::shared_ptr<Part>>& parts);

  std::size_t floats() const { return floats_; }  // of one micro-batch
  bool empty() const { return layers_.empty(); }
  // Sets the memory, of floats() numbers, for the micro-batch that is computed next.
  void Begin(std::span<float> room) { room_ = room; }
  void Record(const BatchNorm& layer, const torch::Tensor& mean, const torch::Tensor& variance);
  // The micro-batch is computed. Afterwards its statistics are in the memory.
  void End();
  // Updates the running statistics with those of one micro-batch.
  void Apply(std::span<const float> room);

 private:
  struct Layer {
    std::shared_ptr<BatchNorm> module;
    std::size_t offset = 0;
  };

  void Put(std::size_t offset, const torch::Tensor& both);

  std::vector<Layer> layers_;
  std::size_t floats_ = 0;
  std::span<float> room_;
  // Of a GPU, by offset: fetched together, because every fetch waits for the device.
  std::vector<std::pair<std::size_t, torch::Tensor>> waiting_;
};

}  // namespace forebay::train
