// Makes the tasks of the trainer's benchmarks by name: each is a model in a size that a processor
// computes in some tenths of a second, with samples and targets that are drawn from a seed.
// forebay_trainer_bench and forebay_memory_bench train them. GradientDigest gives the first
// gradients as one number, which must be the same under every layout and for every way to keep
// saved values.
#include "bench/trainer/bench_task.h"

#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "proto/contract/checksum.h"
#include "trainer/models/model_request.h"
#include "trainer/models/sample_losses.h"
#include "trainer/models/testing/synthetic_samples.h"
#include "trainer/numerics/random_key.h"

namespace forebay::train {
namespace {

// x + W2 gelu(W1 x): the feed-forward half of a transformer block.
class Block final : public Part {
 public:
  explicit Block(std::int64_t width) {
    in_ = register_module("in", torch::nn::Linear(width, 4 * width));
    out_ = register_module("out", torch::nn::Linear(4 * width, width));
  }
  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    return inputs[0] + out_->forward(torch::gelu(in_->forward(inputs[0])));
  }

 private:
  torch::nn::Linear in_{nullptr};
  torch::nn::Linear out_{nullptr};
};

// Input and target have different names, `what`, so that one seed gives independent numbers for
// them. Step and micro-batch of LayerSeed have no meaning here and are fixed.
torch::Tensor Normal(const std::vector<std::int64_t>& shape, std::uint64_t seed,
                     std::uint32_t samples, const char* what) {
  return testing::NormalSamples(shape, samples, LayerSeed(1, seed, 0, what));
}

// All blocks of the chain are equal, so any cut into stages of equal numbers of blocks is balanced,
// and what a pipeline loses is not the fault of its split. The target is noise: only the time and
// the bits of the steps are of interest.
BenchTask Chain(const ChainShape& chain) {
  BenchTask task;
  task.samples = 32;
  task.model.name = fmt::format("chain-{}x{}", chain.blocks, chain.width);
  for (std::uint32_t block = 0; block < chain.blocks; ++block) {
    task.model.parts.push_back(
        {.name = fmt::format("block{}", block),
         .make = [width = chain.width] { return std::make_shared<Block>(width); }});
  }
  task.model.loss = MakeSquaredError();
  task.input = [width = chain.width](std::uint64_t seed, std::uint32_t samples) {
    return Normal({width}, seed, samples, "input");
  };
  task.target = [width = chain.width](std::uint64_t seed, std::uint32_t samples) {
    return Normal({width}, seed, samples, "target");
  };
  return task;
}

// A model of the registry, and how many samples its micro-batches have.
struct Preset {
  const char* name;
  std::uint32_t samples;
  ModelRequest request;
};

std::vector<Preset> Presets() {
  return {{"vit", 4, {.name = "vit-tiny", .shape = {3, 96, 96}, .outputs = 100}},
          {"resnet", 4, {.name = "resnet18", .shape = {3, 64, 64}, .outputs = 100}},
          {"unet3d",
           1,
           {.name = "unet3d",
            .shape = {1, 24, 24, 24},
            .settings = {{"width", 8}, {"width_max", 64}, {"levels", 3}}}},
          {"cosmoflow",
           1,
           {.name = "cosmoflow",
            .shape = {4, 48, 48, 48},
            .settings = {{"width", 8}, {"convolutions", 5}}}}};
}

// The target is computed from the input, so that the model can learn it: the class of a sample or
// of each voxel, or numbers.
Result<BenchTask> FromRegistry(const Preset& preset, double dropout) {
  ModelRequest request = preset.request;
  // Models without this setting refuse it, so it is passed on only if it was asked for.
  if (dropout > 0) request.settings["dropout"] = dropout;
  FOREBAY_ASSIGN(const ModelSizes sizes, ResolveModel(request));
  BenchTask task;
  FOREBAY_ASSIGN(task.model, MakeModel(request));
  task.samples = preset.samples;
  task.input = [sizes](std::uint64_t seed, std::uint32_t samples) {
    return Normal(sizes.shape, seed, samples, "input");
  };
  task.target = [sizes](std::uint64_t seed, std::uint32_t samples) {
    // Draws the input once more: the same seed gives the same numbers.
    return testing::LearnableTargets(sizes, Normal(sizes.shape, seed, samples, "input"));
  };
  return task;
}

Result<BenchTask> Make(const std::string& name, const ChainShape& chain, double dropout) {
  if (name == "chain") return Chain(chain);
  for (const Preset& preset : Presets()) {
    if (name == preset.name) return FromRegistry(preset, dropout);
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("no task {}: chain, vit, resnet, unet3d or cosmoflow", name));
}

}  // namespace

Result<BenchTask> MakeBenchTask(const std::string& name, std::uint32_t samples,
                                const ChainShape& chain, double dropout) {
  FOREBAY_ASSIGN(BenchTask task, Make(name, chain, dropout));
  if (samples > 0) task.samples = samples;
  return task;
}

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Every rank has digests of its own parts only, and ranks exchange sums of doubles. So the digest
// of a part is cut into halves of 32 bits, which doubles hold exactly also when all replicas add
// theirs. A third number counts the ranks that have the part. The mean is the digest itself if all
// replicas have the same one; otherwise it is another number, and the difference shows.
Result<std::uint64_t> GradientDigest(const Model& model, const HybridTrainer& trainer,
                                     Communicator& communicator) {
  std::vector<double> halves(3 * model.parts.size());
  for (HeldPart* const part : trainer.HeldParts()) {
    const auto found = std::ranges::find(model.parts, part->name(), &ModelPart::name);
    const std::size_t at = 3 * static_cast<std::size_t>(found - model.parts.begin());
    ChecksumStream stream;
    for (const HeldTensor& held : part->Tensors()) {
      // The momentum, which is the gradient after the first step.
      if (held.kind == HeldTensor::Kind::kState) stream.Update(std::as_bytes(held.values));
    }
    const std::uint64_t digest = stream.Finish();
    halves[at] = static_cast<double>(digest >> 32U);
    halves[at + 1] = static_cast<double>(digest & 0xffffffffU);
    halves[at + 2] = 1;
  }
  FOREBAY_TRY(communicator.AllReduceSum(std::span<double>(halves)));
  for (std::size_t at = 0; at < halves.size(); at += 3) {
    halves[at] /= halves[at + 2];
    halves[at + 1] /= halves[at + 2];
    // The count depends on the layout, and the digest must not.
    halves[at + 2] = 1;
  }
  return Checksum(std::as_bytes(std::span(halves)));
}

}  // namespace forebay::train
