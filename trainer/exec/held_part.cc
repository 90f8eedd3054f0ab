#include "trainer/exec/held_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "trainer/numerics/random_key.h"

namespace forebay::train {
namespace {

std::vector<std::uint64_t> ShapeOf(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

}  // namespace

std::vector<std::string> StateNames(OptimiserKind kind) {
  if (kind == OptimiserKind::kSgd) return {"momentum"};
  return {"exp_avg", "exp_avg_sq"};  // as PyTorch calls them
}

Result<std::unique_ptr<HeldPart>> HeldPart::Make(const ModelPart& spec, std::uint64_t seed,
                                                 OptimiserKind optimiser) {
  std::unique_ptr<HeldPart> held(new HeldPart());
  held->name_ = spec.name;
  {
    // Torch's generator is one for the whole process; ranks may be threads of it.
    static std::mutex making;
    const std::lock_guard lock(making);
    torch::manual_seed(ParameterSeed(seed, spec.name));
    held->part_ = spec.make();
  }
  FOREBAY_CHECK(held->part_ != nullptr);
  std::size_t total = 0;
  for (const auto& item : held->part_->named_parameters()) {
    const torch::Tensor& value = item.value();
    if (value.scalar_type() != torch::kFloat32 || !value.device().is_cpu()) {
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("parameter {}.{} is not a float on the CPU", spec.name,
                               item.key()));
    }
    const auto count = static_cast<std::size_t>(value.numel());
    held->parameters_.push_back({.name = spec.name + "." + item.key(),
                                 .offset = total,
                                 .count = count,
                                 .decays = value.dim() > 1,
                                 .shape = ShapeOf(value)});
    held->tensors_.push_back(value);
    total += count;
  }
  for (const auto& item : held->part_->named_buffers()) {
    if (item.value().scalar_type() != torch::kFloat32 || !item.value().is_contiguous()) {
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("buffer {}.{} is not of contiguous floats", spec.name,
                               item.key()));
    }
    held->buffers_.push_back(item.value());
    held->buffer_names_.push_back(spec.name + "." + item.key());
  }
  held->weights_.resize(total);
  held->state_names_ = StateNames(optimiser);
  held->states_.assign(OptimiserStates(optimiser), std::vector<float>(total));
  const torch::NoGradGuard no_grad;
  for (std::size_t at = 0; at < held->tensors_.size(); ++at) {
    torch::Tensor& tensor = held->tensors_[at];
    const torch::Tensor view = torch::from_blob(
        held->weights_.data() + held->parameters_[at].offset, tensor.sizes(), torch::kFloat32);
    view.copy_(tensor);
    tensor.set_data(view);
  }
  return held;
}

// Autograd leaves a parameter's first gradient as it made it: nothing is copied on the way.
void HeldPart::GiveGradients(GradientSum& sum, std::size_t offset) {
  for (std::size_t at = 0; at < tensors_.size(); ++at) {
    const HeldParameter& parameter = parameters_[at];
    torch::Tensor& gradient = tensors_[at].mutable_grad();
    if (gradient.defined()) {
      const torch::Tensor values = gradient.contiguous();
      sum.Add(offset + parameter.offset, {values.data_ptr<float>(), parameter.count});
    } else {
      sum.AddNothing(offset + parameter.offset, parameter.count);
    }
    gradient = torch::Tensor();
  }
}

void HeldPart::Update(const OptimiserOptions& options, const UpdateStep& step,
                      std::span<const float> gradient) {
  FOREBAY_CHECK(gradient.size() == weights_.size());
  for (const HeldParameter& parameter : parameters_) {
    UpdateStep own = step;
    if (!parameter.decays) own.weight_decay = 0;
    std::vector<std::span<float>> states;
    for (std::vector<float>& state : states_) {
      states.push_back(std::span(state).subspan(parameter.offset, parameter.count));
    }
    UpdateWeights(options, own, weights().subspan(parameter.offset, parameter.count),
                  gradient.subspan(parameter.offset, parameter.count), states);
  }
}

std::vector<std::span<float>> HeldPart::Buffers() const {
  std::vector<std::span<float>> spans;
  for (const torch::Tensor& buffer : buffers_) {
    spans.emplace_back(buffer.data_ptr<float>(), static_cast<std::size_t>(buffer.numel()));
  }
  return spans;
}

std::vector<float> HeldPart::Pack() const {
  std::vector<float> packed = weights_;
  for (const std::vector<float>& state : states_) {
    packed.insert(packed.end(), state.begin(), state.end());
  }
  for (const std::span<float>& buffer : Buffers()) {
    packed.insert(packed.end(), buffer.begin(), buffer.end());
  }
  return packed;
}

Status HeldPart::Unpack(std::span<const float> packed) {
  std::vector<std::span<float>> targets = {weights_};
  for (std::vector<float>& state : states_) targets.emplace_back(state);
  for (const std::span<float>& buffer : Buffers()) targets.push_back(buffer);
  std::size_t total = 0;
  for (const std::span<float>& target : targets) total += target.size();
  if (total != packed.size()) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("part {} has {} floats, {} came", name_, total, packed.size()));
  }
  for (const std::span<float>& target : targets) {
    std::copy_n(packed.begin(), target.size(), target.begin());
    packed = packed.subspan(target.size());
  }
  return {};
}

std::vector<HeldTensor> HeldPart::Tensors() {
  using Kind = HeldTensor::Kind;
  std::vector<HeldTensor> tensors;
  for (const HeldParameter& parameter : parameters_) {
    tensors.push_back({Kind::kWeight, parameter.name, parameter.shape,
                       weights().subspan(parameter.offset, parameter.count)});
  }
  const std::vector<std::span<float>> buffers = Buffers();
  for (std::size_t at = 0; at < buffers.size(); ++at) {
    tensors.push_back({Kind::kBuffer, buffer_names_[at], ShapeOf(buffers_[at]), buffers[at]});
  }
  for (std::size_t which = 0; which < states_.size(); ++which) {
    for (const HeldParameter& parameter : parameters_) {
      tensors.push_back({Kind::kState, parameter.name + "/" + state_names_[which],
                         parameter.shape,
                         state(which).subspan(parameter.offset, parameter.count)});
    }
  }
  return tensors;
}

std::uint64_t HeldPart::Digest() const {
  ChecksumStream stream;
  stream.Update(std::as_bytes(std::span(name_)));
  stream.Update(std::as_bytes(std::span(weights_)));
  for (const std::span<float>& buffer : Buffers()) stream.Update(std::as_bytes(buffer));
  return stream.Finish();
}

}  // namespace forebay::train
