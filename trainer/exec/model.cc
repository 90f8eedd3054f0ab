// What the trainer asks of any model: the checks of its list of parts, which parts each one takes,
// and cross entropy, the loss that most models have. A model is checked once, when the trainer is
// made, so that later code may look parts up by name without tests.
#include "trainer/exec/model.h"

#include <fmt/format.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <utility>

namespace forebay::train {
namespace {

class CrossEntropy final : public Loss {
 public:
  explicit CrossEntropy(double label_smoothing) : label_smoothing_(label_smoothing) {}

  // A sum and not a mean: the trainer divides by the samples of the whole step, so that the size
  // of a micro-batch does not matter.
  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    return torch::nn::functional::cross_entropy(
        output, target,
        torch::nn::functional::CrossEntropyFuncOptions()
            .reduction(torch::kSum)
            .label_smoothing(label_smoothing_));
  }

  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    // A correct answer counts 1, so the score divided by the samples is the accuracy.
    return {.sum = output.argmax(1).eq(target).sum().item<double>(),
            .samples = static_cast<std::uint64_t>(target.size(0))};
  }

 private:
  double label_smoothing_;
};

}  // namespace

// The order is that of Forward's inputs: the part before, then the skips.
std::vector<std::vector<std::uint32_t>> SourcesOf(const Model& model) {
  std::vector<std::vector<std::uint32_t>> sources(model.parts.size());
  for (std::uint32_t part = 0; part < model.parts.size(); ++part) {
    if (part > 0) sources[part].push_back(part - 1);
    for (const std::string& taken : model.parts[part].takes) {
      const auto found = std::ranges::find(model.parts, taken, &ModelPart::name);
      sources[part].push_back(static_cast<std::uint32_t>(found - model.parts.begin()));
    }
  }
  return sources;
}

Status CheckModel(const Model& model) {
  if (model.parts.empty() || model.loss == nullptr) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("model {}: it has no parts, or no loss", model.name));
  }
  std::vector<std::string> names;
  for (const ModelPart& part : model.parts) {
    if (!part.make || part.name.empty() ||
        std::ranges::find(names, part.name) != names.end()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("model {}: part {} (\"{}\") has no name or no maker, or its name "
                               "is there twice",
                               model.name, names.size(), part.name));
    }
    for (const std::string& taken : part.takes) {
      const auto found = std::ranges::find(names, taken);
      // Parts that come later are not in `names` yet, so a part cannot take itself or a later one.
      if (found == names.end() || taken == names.back()) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("model {}: part {} takes {}, which is no earlier part, or the "
                                 "one just before it",
                                 model.name, part.name, taken));
      }
    }
    names.push_back(part.name);
  }
  return {};
}

torch::Tensor WithGradient(const torch::Tensor& value) {
  return value.is_floating_point() ? value.detach().requires_grad_() : value;
}

// It is here and not in models/, so that a model of one's own needs no other room.
std::shared_ptr<Loss> MakeCrossEntropy(double label_smoothing) {
  return std::make_shared<CrossEntropy>(label_smoothing);
}

}  // namespace forebay::train
