// What the trainer's benchmarks train: models of the registry in sizes for a processor, and a chain
// of equal blocks, on synthetic samples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/exec/hybrid_trainer.h"

namespace forebay::train {

struct BenchTask {
  Model model;
  std::uint32_t samples = 1;  // of a micro-batch
  // {samples, ...} from a seed.
  std::function<torch::Tensor(std::uint64_t seed, std::uint32_t samples)> input;
  std::function<torch::Tensor(std::uint64_t seed, std::uint32_t samples)> target;
};

struct ChainShape {
  std::uint32_t blocks = 8;
  std::int64_t width = 512;
};

// "chain": feed-forward blocks of a transformer. "vit", "resnet", "unet3d", "cosmoflow": the
// registry's models in sizes that take some tenths of a second a micro-batch; `dropout` replaces
// that of those who have it. `samples` of a micro-batch; 0: the task's own.
Result<BenchTask> MakeBenchTask(const std::string& name, std::uint32_t samples,
                                const ChainShape& chain, double dropout);

// A step's micro-batches, made beforehand; each time they are asked for they are copied, as they
// would come from a feed.
class BenchSource final : public MicroBatchSource {
 public:
  BenchSource(const BenchTask& task, std::uint32_t micro_batches) {
    for (std::uint32_t at = 0; at < micro_batches; ++at) {
      inputs_.push_back(task.input(at, task.samples));
      targets_.push_back(task.target(at, task.samples));
    }
  }
  Result<torch::Tensor> Input(std::uint32_t micro_batch) override {
    return inputs_.at(micro_batch).clone();
  }
  Result<torch::Tensor> Target(std::uint32_t micro_batch) override {
    return targets_.at(micro_batch).clone();
  }

 private:
  std::vector<torch::Tensor> inputs_;
  std::vector<torch::Tensor> targets_;
};

std::uint64_t NowNs();

// Of the gradients of the last step, where it was the first with SGD and no weight decay: then
// they are the optimiser's momentum. The same on every rank; collective.
Result<std::uint64_t> GradientDigest(const Model& model, const HybridTrainer& trainer,
                                     Communicator& communicator);

}  // namespace forebay::train
