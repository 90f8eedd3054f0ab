#include <algorithm>
#include <exception>
#include <optional>

#include <fmt/format.h>

#include "trainer/exec/flop_count.h"
#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/layers.h"
#include "trainer/exec/saved_tensors.h"
#include "trainer/exec/tensor_bytes.h"
#include "trainer/numerics/gradient_sum.h"

namespace forebay::train {
namespace {

std::uint64_t BytesOf(const torch::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.nbytes());
}

constexpr int kRuns = 8;

std::uint64_t MedianAfterFirst(std::vector<std::uint64_t> times) {
  times.erase(times.begin());
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// Parameters and normalisation's statistics of one part.
void CountBytes(const std::shared_ptr<Part>& part, ModuleProfile& profile) {
  for (const torch::Tensor& parameter : part->parameters()) {
    profile.parameter_bytes += BytesOf(parameter);
  }
  profile.statistics_bytes = Statistics({part}).floats() * sizeof(float);
}

// The output and what autograd keeps besides inputs, parameters and buffers, which stay anyway.
std::uint64_t KeptBytes(const SavedTensors& saved, const Part& part,
                        const std::vector<torch::Tensor>& inputs, const torch::Tensor& output) {
  std::vector<torch::Tensor> others = inputs;
  others.push_back(output);
  for (const torch::Tensor& parameter : part.parameters()) others.push_back(parameter);
  for (const torch::Tensor& buffer : part.buffers()) others.push_back(buffer);
  return BytesOf(output) + SavedBytes(saved, others);
}

// What a step does with them.
void AddGradients(const std::vector<torch::Tensor>& parameters, GradientSum& sum) {
  std::size_t offset = 0;
  for (const torch::Tensor& parameter : parameters) {
    const auto floats = static_cast<std::size_t>(parameter.numel());
    const torch::Tensor& gradient = parameter.grad();
    if (gradient.defined()) {
      const torch::Tensor values = gradient.contiguous();
      sum.Add(offset, {values.data_ptr<float>(), floats});
    }
    offset += floats;
  }
  sum.Next();
}

class Measurement {
 public:
  Measurement(const Model& model, const std::function<std::uint64_t()>& now_ns, bool records)
      : model_(model), now_ns_(now_ns) {
    measure_.saved_exactly = records;
  }

  void Part(std::uint32_t index, const torch::Tensor& input, const torch::Tensor& target) {
    const ModelPart& spec = model_.parts[index];
    const std::shared_ptr<train::Part> part = spec.make();
    ModuleProfile profile;
    profile.name = spec.name;
    CountBytes(part, profile);
    std::vector<torch::Tensor> leaves;
    if (index == 0) leaves.push_back(input.detach());
    if (index > 0) leaves.push_back(outputs_[index - 1].detach().requires_grad_());
    for (const std::string& taken : spec.takes) {
      const auto found = std::ranges::find(model_.parts, taken, &ModelPart::name);
      const auto from = static_cast<std::uint32_t>(found - model_.parts.begin());
      measure_.graph.skips.push_back({.from = from, .to = index});
      leaves.push_back(outputs_[from].detach().requires_grad_());
    }
    // The first run pays for what is set up once, and for counting; of the others the median
    // counts.
    std::vector<std::uint64_t> forward_ns;
    std::vector<std::uint64_t> backward_ns;
    std::vector<torch::Tensor> parameters = part->parameters();
    GradientSum sum(profile.parameter_bytes / sizeof(float), SumOrder::kLeftToRight);
    for (int run = 0; run < kRuns; ++run) {
      Pass pass;
      pass.part = spec.name;
      for (torch::Tensor& leaf : leaves) leaf.mutable_grad() = torch::Tensor();
      for (torch::Tensor& parameter : parameters) parameter.mutable_grad() = torch::Tensor();
      SavedTensors saved;
      std::optional<FlopCount> flops;
      if (run == 0) flops.emplace();
      bytes_.BeginPeak();
      const std::uint64_t began_ns = now_ns_();
      std::optional<SavedTensorRecording> recording;
      if (run == 0 && measure_.saved_exactly) recording.emplace(saved);
      torch::Tensor root = part->Forward(leaves, pass).contiguous();
      outputs_.resize(index);
      outputs_.push_back(root.detach());
      const bool last = index + 1 == model_.parts.size();
      if (last) root = model_.loss->Sum(root, target);
      recording.reset();
      const std::uint64_t turned_ns = now_ns_();
      if (run == 0) profile.saved_bytes = KeptBytes(saved, *part, leaves, outputs_.back());
      profile.forward_scratch_bytes = bytes_.Peak() - bytes_.Live();
      const torch::Tensor gradient = torch::ones_like(root);
      bytes_.BeginPeak();
      const std::uint64_t live_bytes = bytes_.Live();
      torch::autograd::backward({root}, {gradient});
      AddGradients(parameters, sum);
      profile.backward_scratch_bytes = bytes_.Peak() - live_bytes + BytesOf(gradient);
      if (flops) measure_.flops.push_back(flops->flops());
      forward_ns.push_back(turned_ns - began_ns);
      backward_ns.push_back(now_ns_() - turned_ns);
    }
    profile.forward_ns = MedianAfterFirst(forward_ns);
    profile.backward_ns = MedianAfterFirst(backward_ns);
    profile.output_bytes = BytesOf(outputs_.back());
    if (!measure_.saved_exactly) {
      for (const torch::Tensor& leaf : leaves) profile.saved_bytes += BytesOf(leaf);
    }
    const auto sizes = outputs_.back().sizes();
    measure_.shapes.emplace_back(sizes.begin() + 1, sizes.end());
    measure_.graph.modules.push_back(std::move(profile));
  }

  ModelMeasure Take(const torch::Tensor& input, const torch::Tensor& target) {
    measure_.graph.input_bytes = BytesOf(input);
    measure_.graph.target_bytes = BytesOf(target);
    return std::move(measure_);
  }

 private:
  const Model& model_;
  const std::function<std::uint64_t()>& now_ns_;
  TensorBytes bytes_;
  std::vector<torch::Tensor> outputs_;
  ModelMeasure measure_;
};

}  // namespace

Result<ModelMeasure> MeasureModel(const Model& model, const torch::Tensor& input,
                                  const torch::Tensor& target,
                                  const std::function<std::uint64_t()>& now_ns) {
  FOREBAY_TRY(CheckModel(model));
  const bool records = InstallSavedTensorHooks().has_value();
  try {
    Measurement measurement(model, now_ns, records);
    for (std::uint32_t part = 0; part < model.parts.size(); ++part) {
      measurement.Part(part, input, target);
    }
    return measurement.Take(input, target);
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("model {} does not take this input: {}", model.name, error.what()));
  }
}

}  // namespace forebay::train
