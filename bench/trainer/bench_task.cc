// The tasks of the trainer's benchmarks: each is a model in a size that a processor computes in
// some tenths of a second, with samples and targets drawn from a seed. A digest of the first
// gradients lets two layouts be compared before any weight has moved.
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

torch::Tensor Normal(const std::vector<std::int64_t>& shape, std::uint64_t seed,
                     std::uint32_t samples, const char* what) {
  return testing::NormalSamples(shape, samples, LayerSeed(1, seed, 0, what));
}

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

// What the input decides: the class of a sample, of each voxel, or numbers.
Result<BenchTask> FromRegistry(const Preset& preset, double dropout) {
  ModelRequest request = preset.request;
  if (dropout > 0) request.settings["dropout"] = dropout;
  FOREBAY_ASSIGN(const ModelSizes sizes, ResolveModel(request));
  BenchTask task;
  FOREBAY_ASSIGN(task.model, MakeModel(request));
  task.samples = preset.samples;
  task.input = [sizes](std::uint64_t seed, std::uint32_t samples) {
    return Normal(sizes.shape, seed, samples, "input");
  };
  task.target = [sizes](std::uint64_t seed, std::uint32_t samples) {
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

// Halves of the parts' digests, which doubles hold exactly, summed over the ranks that have the
// part and divided by their number.
Result<std::uint64_t> GradientDigest(const Model& model, const HybridTrainer& trainer,
                                     Communicator& communicator) {
  std::vector<double> halves(3 * model.parts.size());
  for (HeldPart* const part : trainer.HeldParts()) {
    const auto found = std::ranges::find(model.parts, part->name(), &ModelPart::name);
    const std::size_t at = 3 * static_cast<std::size_t>(found - model.parts.begin());
    ChecksumStream stream;
    for (const HeldTensor& held : part->Tensors()) {
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
    halves[at + 2] = 1;
  }
  return Checksum(std::as_bytes(std::span(halves)));
}

}  // namespace forebay::train
