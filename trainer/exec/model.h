// What a model is to forebay-train: a flat list of parts. Each part takes the output of the part
// before it and, by name, outputs of earlier parts (skips). Every cut between two parts is a legal
// pipeline stage. Include this header to write a model and a loss of your own;
// trainer/models/example/own_model.cc is a complete program.
//
//   class Double final : public Part {
//    public:
//     Double() { linear_ = register_module("linear", torch::nn::Linear(8, 16)); }
//     torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
//       return torch::relu(linear_->forward(inputs[0]));
//     }
//     ...
//   };
//   Model model{.name = "double 8-16",
//               .parts = {{.name = "double", .make = PartMaker<Double>()}},
//               .loss = MakeCrossEntropy(0)};
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "proto/contract/result.h"

namespace forebay::train {

class BatchStatistics;

// One forward pass of one part for one micro-batch: everything that it may depend on besides its
// inputs and parameters.
struct Pass {
  bool training = true;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;
  std::string part;                   // its name
  std::uint32_t draws = 0;            // random layers passed so far
  BatchStatistics* statistics = nullptr;  // where normalisation layers leave theirs; may be null
};

// A part of a model. Parameters and buffers are registered as with any torch module. A parameter
// that does not require a gradient when the part is made is frozen: it is neither updated nor
// decayed. A part may have no parameters, but at least one parameter of the model is trained.
// Forward must be a function of parameters, inputs and pass alone, because it runs again where a
// part is recomputed.
class Part : public torch::nn::Module {
 public:
  // inputs[0] is the output of the part before, or, for the first part, the micro-batch's input
  // {samples, ...}. The skips follow, in the order of ModelPart::takes. Returns one tensor whose
  // first dimension is the sample.
  virtual torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass& pass) = 0;
};

struct ModelPart {
  std::string name;  // unique
  // Makes the part with its first weights, drawn from torch's default generator. The trainer seeds
  // the generator by the part's name, so that weights do not depend on which other parts are made,
  // and on which rank.
  std::function<std::shared_ptr<Part>()> make;
  std::vector<std::string> takes = {};  // earlier parts, not the one just before
};

// Makes a T from copies of `arguments`, for ModelPart::make.
template <typename T, typename... Arguments>
std::function<std::shared_ptr<Part>()> PartMaker(Arguments... arguments) {
  return [=] { return std::make_shared<T>(arguments...); };
}

// The metric of an evaluation, summed over some samples. What it is depends on the loss: for a
// classifier 1 for a correct answer and 0 for a wrong one, for a regression the absolute error.
struct Score {
  double sum = 0;
  std::uint64_t samples = 0;
};

class Loss {
 public:
  virtual ~Loss() = default;
  // Returns the sum over the samples of a micro-batch as a scalar. The trainer divides it by the
  // samples of the step.
  virtual torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const = 0;
  virtual Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const = 0;
};

struct Model {
  std::string name;  // with its sizes: two models of one name have the same parameters
  std::vector<ModelPart> parts;
  std::shared_ptr<Loss> loss;
};

// Returns `value`, which belongs to no graph, as a leaf whose gradient is computed. Whole numbers
// have no gradients and are returned unchanged.
torch::Tensor WithGradient(const torch::Tensor& value);

// For each part of a checked model, the parts whose outputs it takes: the part before it, then its
// skips.
std::vector<std::vector<std::uint32_t>> SourcesOf(const Model& model);

// kInvalidArgument for a model without parts or loss, for part names that are empty or used twice,
// and for skips that do not come from an earlier part.
Status CheckModel(const Model& model);

// Cross entropy over class indices, with label smoothing (Szegedy et al., 2016) in [0, 1).
std::shared_ptr<Loss> MakeCrossEntropy(double label_smoothing);

}  // namespace forebay::train
