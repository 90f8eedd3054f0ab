// A model and a loss of one's own, trained as a pipeline: everything in this file is what a user
// writes. It learns a quantile of y = sin(3 a) + b^2 + noise.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "trainer/comm/local_transport.h"
#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/layers.h"
#include "trainer/exec/model.h"

namespace {

using namespace forebay;         // NOLINT: a program, not a header
using namespace forebay::train;  // NOLINT

// A part: parameters are registered as with any torch module.
class Fold final : public Part {
 public:
  Fold(std::int64_t in, std::int64_t out) {
    linear_ = register_module("linear", torch::nn::Linear(in, out));
    norm_ = register_module("norm", std::make_shared<BatchNorm>(out));
  }
  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass& pass) override {
    const torch::Tensor folded = torch::relu(norm_->Forward(linear_->forward(inputs[0]), pass));
    return Dropout(folded, 0.02, pass);
  }

 private:
  torch::nn::Linear linear_{nullptr};
  std::shared_ptr<BatchNorm> norm_;
};

// Takes the part before it and, by name, an earlier one.
class Join final : public Part {
 public:
  explicit Join(std::int64_t in) {
    linear_ = register_module("linear", torch::nn::Linear(in, 1));
  }
  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    return linear_->forward(torch::cat({inputs[0], inputs[1]}, 1));
  }

 private:
  torch::nn::Linear linear_{nullptr};
};

// Of the quantile `share` (Koenker and Bassett, 1978).
class PinballLoss final : public Loss {
 public:
  explicit PinballLoss(double share) : share_(share) {}
  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    const torch::Tensor below = target - output;
    return torch::maximum(share_ * below, (share_ - 1) * below).sum();
  }
  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    return {.correct = (output - target).abs().sum().item<double>(),
            .samples = static_cast<std::uint64_t>(target.size(0))};
  }

 private:
  double share_;
};

Model MakeOwnModel() {
  return {.name = "quantile 2-32-32-1",
          .parts = {{.name = "wide", .make = [] { return std::make_shared<Fold>(2, 32); }},
                    {.name = "deep", .make = [] { return std::make_shared<Fold>(32, 32); }},
                    {.name = "join",
                     .make = [] { return std::make_shared<Join>(64); },
                     .takes = {"wide"}}},
          .loss = std::make_shared<PinballLoss>(0.5)};
}

constexpr std::uint32_t kMicroBatches = 4;
constexpr std::uint32_t kSamples = 64;  // of a micro-batch

// Where micro-batches come from: here, out of a generator; else, from forebayd.
class Samples final : public MicroBatchSource {
 public:
  explicit Samples(std::uint64_t step) : step_(step) {}
  Result<torch::Tensor> Input(std::uint32_t micro_batch) override {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(step_ * kMicroBatches + micro_batch);
    return torch::empty({kSamples, 2}).uniform_(-1, 1, generator);
  }
  Result<torch::Tensor> Target(std::uint32_t micro_batch) override {
    FOREBAY_ASSIGN(const torch::Tensor input, Input(micro_batch));
    return torch::sin(3 * input.narrow(1, 0, 1)) + input.narrow(1, 1, 1).square();
  }

 private:
  std::uint64_t step_;
};

struct Outcome {
  double first_loss = 0;
  double last_loss = 0;
  std::uint64_t digest = 0;
};

Result<Outcome> TrainRank(const Model& model, const ModelMeasure& measure,
                          const HybridLayout& layout, std::unique_ptr<Transport> transport) {
  Communicator communicator(std::move(transport), Communicator::kTimeoutNs);
  HybridOptions options;
  FOREBAY_ASSIGN(options.stage.optimiser.optimiser, FindOptimiser("adamw"));
  options.micro_batches = kMicroBatches;
  FOREBAY_ASSIGN(const auto trainer, HybridTrainer::Make(model, measure, communicator, options,
                                                         layout));
  Outcome outcome;
  for (std::uint64_t step = 0; step < 60; ++step) {
    Samples samples(step);
    FOREBAY_ASSIGN(const StageOutcome done,
                   trainer->TrainStep(0.01, std::vector(kMicroBatches, kSamples), samples));
    if (step == 0) outcome.first_loss = done.loss_sum;
    outcome.last_loss = done.loss_sum;
  }
  FOREBAY_ASSIGN(outcome.digest, trainer->Digest());
  return outcome;
}

// One rank per stage, each a thread of this process; under mpirun, a process each.
Result<Outcome> Train(const Model& model, const StageSplit& split) {
  Samples samples(0);
  FOREBAY_ASSIGN(const torch::Tensor input, samples.Input(0));
  FOREBAY_ASSIGN(const torch::Tensor target, samples.Target(0));
  FOREBAY_ASSIGN(const ModelMeasure measure,
                 MeasureModel(model, input, target, [] { return std::uint64_t{0}; }));
  const HybridLayout layout = {.layout = {.replicas = 1, .stages = split.stages()},
                               .split = split};
  auto ends = MakeLocalTransports(split.stages());
  std::vector<Result<Outcome>> outcomes(ends.size(), Error(ErrorCode::kUnknown, "did not run"));
  std::vector<std::jthread> ranks;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      at::set_num_threads(1);
      outcomes[rank] = TrainRank(model, measure, layout, std::move(ends[rank]));
    });
  }
  ranks.clear();
  for (const Result<Outcome>& outcome : outcomes) {
    if (!outcome.has_value()) return outcome;
  }
  return outcomes.front();
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const Model model = MakeOwnModel();
  const Result<Outcome> alone = Train(model, {{0}});
  const Result<Outcome> staged = Train(model, {{0, 1}});
  for (const Result<Outcome>* outcome : {&alone, &staged}) {
    if (!outcome->has_value()) {
      fmt::print(stderr, "{}\n", outcome->error().ToString());
      return 1;
    }
  }
  fmt::print("loss {:.2f} -> {:.2f}; weights {:016x} on one rank, {:016x} in two stages\n",
             staged->first_loss, staged->last_loss, alone->digest, staged->digest);
  const bool is_good =
      staged->last_loss < staged->first_loss / 2 && alone->digest == staged->digest;
  return is_good ? 0 : 1;
}
