// Dropout draws from a generator that is seeded for each call with a key of seed, step,
// micro-batch, part and draw. Batch normalisation computes with the batch's own statistics in
// training, and hands these to the stage, which updates the running statistics once per step. So
// neither depends on which rank computes the part, on the layout, or on whether it is computed
// again.
#include "trainer/exec/layers.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/numerics/random_key.h"

namespace forebay::train {

torch::Tensor Dropout(const torch::Tensor& input, double rate, Pass& pass) {
  if (!pass.training || rate == 0) return input;
  const std::uint64_t seed = LayerSeed(pass.seed, pass.step, pass.micro_batch,
                                       fmt::format("{}#{}", pass.part, pass.draws++));
  // A generator of our own: torch's default one is shared by the whole process.
  at::Generator generator = input.device().is_cpu()
                                ? at::make_generator<at::CPUGeneratorImpl>(seed)
                                : at::globalContext().defaultGenerator(input.device()).clone();
  if (!input.device().is_cpu()) generator.set_current_seed(seed);
  // What is kept is scaled up, so that evaluations need no scale.
  const torch::Tensor kept = torch::empty_like(input).bernoulli_(1.0 - rate, generator);
  return input * kept.mul_(1.0 / (1.0 - rate));
}

BatchNorm::BatchNorm(std::int64_t channels, double momentum, double epsilon)
    : channels_(channels), momentum_(momentum), epsilon_(epsilon) {
  weight_ = register_parameter("weight", torch::ones({channels}));
  bias_ = register_parameter("bias", torch::zeros({channels}));
  running_mean_ = register_buffer("running_mean", torch::zeros({channels}));
  running_variance_ = register_buffer("running_var", torch::ones({channels}));
}

torch::Tensor BatchNorm::Forward(const torch::Tensor& input, Pass& pass) {
  if (!pass.training) {
    return torch::batch_norm(input, weight_, bias_, running_mean_, running_variance_,
                             /*training=*/false, momentum_, epsilon_, /*cudnn_enabled=*/false);
  }
  // With a momentum of 1 torch leaves the batch's own mean and unbiased variance in these.
  const torch::Tensor mean = torch::zeros_like(running_mean_);
  const torch::Tensor variance = torch::ones_like(running_variance_);
  torch::Tensor output = torch::batch_norm(input, weight_, bias_, mean, variance,
                                           /*training=*/true, /*momentum=*/1.0, epsilon_,
                                           /*cudnn_enabled=*/false);
  if (pass.statistics != nullptr) pass.statistics->Record(*this, mean, variance);
  return output;
}

// The layers in the order of the parts: ranks of one stage in all replicas have the same, so that
// their statistics can be exchanged as plain floats.
BatchStatistics::BatchStatistics(const std::vector<std::shared_ptr<Part>>& parts) {
  for (const std::shared_ptr<Part>& part : parts) {
    for (const std::shared_ptr<torch::nn::Module>& module : part->modules()) {
      auto layer = std::dynamic_pointer_cast<BatchNorm>(module);
      if (layer == nullptr) continue;
      const auto floats = static_cast<std::size_t>(2 * layer->channels());
      layers_.push_back({.module = std::move(layer), .offset = floats_});
      floats_ += floats;
    }
  }
}

void BatchStatistics::Record(const BatchNorm& layer, const torch::Tensor& mean,
                        const torch::Tensor& variance) {
  const auto found = std::ranges::find_if(
      layers_, [&](const Layer& entry) { return entry.module.get() == &layer; });
  FOREBAY_CHECK(found != layers_.end() && room_.size() == floats_);
  // Copying from a GPU now would make the processor wait in every layer: End does it for all.
  const torch::Tensor both = torch::cat({mean, variance});
  if (both.is_cpu()) {
    Put(found->offset, both);
  } else {
    waiting_.emplace_back(found->offset, both);
  }
}

void BatchStatistics::Put(std::size_t offset, const torch::Tensor& both) {
  std::copy_n(both.data_ptr<float>(), both.numel(),
              room_.begin() + static_cast<std::ptrdiff_t>(offset));
}

void BatchStatistics::End() {
  if (waiting_.empty()) return;
  // One copy from the GPU for all layers, because each one waits for the device.
  std::vector<torch::Tensor> all;
  for (const auto& [offset, both] : waiting_) all.push_back(both);
  const torch::Tensor host = torch::cat(all).cpu();
  std::int64_t at = 0;
  for (const auto& [offset, both] : waiting_) {
    Put(offset, host.narrow(0, at, both.numel()));
    at += both.numel();
  }
  waiting_.clear();
}

// Called once for each micro-batch after the step, in ascending order on every rank. running =
// (1 - momentum) running + momentum of the batch, for mean and unbiased variance of all layers
// together: a GPU is given one copy and three operations, and not six operations for each layer.
void BatchStatistics::Apply(std::span<const float> room) {
  if (layers_.empty()) return;
  const torch::NoGradGuard no_grad;
  const torch::Device device = layers_.front().module->device();
  const torch::Tensor all =
      torch::from_blob(const_cast<float*>(room.data()),
                       {static_cast<std::int64_t>(room.size())}, torch::kFloat32)
          .to(device);
  std::vector<torch::Tensor> running;
  std::vector<torch::Tensor> batch;
  std::vector<at::Scalar> stays;
  std::vector<at::Scalar> comes;
  for (const Layer& layer : layers_) {
    const BatchNorm& module = *layer.module;
    // The means of all channels, then their variances.
    auto offset = static_cast<std::int64_t>(layer.offset);
    for (const torch::Tensor& own : {module.running_mean(), module.running_variance()}) {
      running.push_back(own);
      batch.push_back(all.narrow(0, offset, module.channels()));
      stays.emplace_back(1.0 - module.momentum());
      comes.emplace_back(module.momentum());
      offset += module.channels();
    }
  }
  at::_foreach_mul_(running, stays);
  at::_foreach_add_(running, at::_foreach_mul(batch, comes));
}

}  // namespace forebay::train
