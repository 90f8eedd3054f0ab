// A trainer for a model and a loss of one's own: everything in this file is what a user writes. The
// model learns a quantile of y, given points (a, b). RunTrainer supplies the rest: samples from
// forebayd, flags, pipeline stages and replicas, checkpoints, evaluation, figures.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/exec/layers.h"
#include "trainer/exec/model.h"
#include "trainer/exec/model_task.h"
#include "trainer/program/run_trainer.h"

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

// The loss of the quantile `share` (Koenker and Bassett, 1978). Evaluations report the sum of
// absolute errors.
class PinballLoss final : public Loss {
 public:
  explicit PinballLoss(double share) : share_(share) {}
  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    const torch::Tensor below = target - output;
    return torch::maximum(share_ * below, (share_ - 1) * below).sum();
  }
  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    return {.sum = (output - target).abs().sum().item<double>(),
            .samples = static_cast<std::uint64_t>(target.size(0))};
  }

 private:
  double share_;
};

// The name holds the sizes, because a checkpoint of another model of this name must not be loaded.
// A part is made by the rank that holds it, so `make` is a function and not an object.
Model MakeOwnModel() {
  return {.name = "quantile 2-32-32-1",
          .parts = {{.name = "wide", .make = [] { return std::make_shared<Fold>(2, 32); }},
                    {.name = "deep", .make = [] { return std::make_shared<Fold>(32, 32); }},
                    {.name = "join",
                     .make = [] { return std::make_shared<Join>(64); },
                     .takes = {"wide"}}},
          .loss = std::make_shared<PinballLoss>(0.5)};
}

// How samples of the data set become the tensors of the model. A float field that has the model's
// shape needs no conversion.
Result<std::shared_ptr<const ModelTask>> MakeOwnTask(const TrainConfig&,
                                                     const SampleFacts& facts) {
  if (facts.input_shape != std::vector<std::uint64_t>{2}) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a point has two coordinates, not the shape [{}]",
                             fmt::join(facts.input_shape, ", ")));
  }
  auto task = std::make_shared<ModelTask>();
  task->model = MakeOwnModel();
  task->metric = {.name = "absolute error", .higher_is_better = false};
  task->input_shape = {2};
  task->target_shape = {1};
  return std::shared_ptr<const ModelTask>(std::move(task));
}

// What flags and the configuration file need not repeat.
TrainConfig OwnDefaults() {
  TrainConfig config;
  config.data.train_dataset = "points-train";
  config.data.validation_dataset = "points-test";
  config.data.input_field = "points";
  config.data.target_field = "values";
  config.train.optimiser = "adamw";
  config.train.learning_rate = 0.01;
  config.train.warmup_steps = 20;
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  return RunTrainer(argc, argv, {.make_task = MakeOwnTask,
                                 .defaults = OwnDefaults(),
                                 .models = "quantile 2-32-32-1: the only one\n"});
}
