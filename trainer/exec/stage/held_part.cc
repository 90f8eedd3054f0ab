// All weights of a part lie in one flat array, and each optimiser state in another one of the same
// length. Torch's parameters become views of it. So an update is one loop over runs of parameters
// that decay alike, and what is sent in a switch or written to a checkpoint is a few contiguous
// pieces.
#include "trainer/exec/stage/held_part.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/thread_annotations.h"
#include "trainer/numerics/random_key.h"

namespace forebay::train {
namespace {

// As checkpoints write it.
std::vector<std::uint64_t> ShapeOf(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

// The memory of a tensor on the host. Without elements it may be null.
std::span<float> FloatsOf(const torch::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

// Floats `offset` to `offset + count` of a flat tensor.
torch::Tensor PieceOf(const torch::Tensor& flat, std::size_t offset, std::size_t count) {
  return flat.narrow(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(count));
}

}  // namespace

Result<std::unique_ptr<HeldPart>> HeldPart::Make(const ModelPart& spec, std::uint64_t seed,
                                                 const Optimiser& optimiser,
                                                 const torch::Device& device) {
  std::unique_ptr<HeldPart> held(new HeldPart());
  held->name_ = spec.name;
  {
    // Torch's generator is one for the whole process; ranks may be threads of it.
    static Mutex making;
    const MutexLock lock(making);
    torch::manual_seed(ParameterSeed(seed, spec.name));
    held->part_ = spec.make();
  }
  FOREBAY_CHECK(held->part_ != nullptr);
  std::size_t& total = held->floats_;
  for (const auto& item : held->part_->named_parameters()) {
    const torch::Tensor& value = item.value();
    // Made on the processor also for a GPU, so that first weights are the same on every device.
    if (value.scalar_type() != torch::kFloat32 || !value.device().is_cpu()) {
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("parameter {}.{} is not a float on the CPU", spec.name,
                               item.key()));
    }
    const auto count = static_cast<std::size_t>(value.numel());
    held->parameters_.push_back({.name = spec.name + "." + item.key(),
                                 .offset = total,
                                 .count = count,
                                 // Biases and normalisation have one axis, and do not decay.
                                 .decays = value.dim() > 1,
                                 .trains = value.requires_grad(),
                                 .shape = ShapeOf(value)});
    held->tensors_.push_back(value);
    held->AddToRuns(held->parameters_.back());
    total += count;
  }
  for (const auto& item : held->part_->named_buffers()) {
    // Buffers are copied as floats when a part moves or is saved.
    if (item.value().scalar_type() != torch::kFloat32 || !item.value().is_contiguous()) {
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("buffer {}.{} is not of contiguous floats", spec.name,
                               item.key()));
    }
    held->buffers_.push_back(item.value());
    held->buffer_names_.push_back(spec.name + "." + item.key());
  }
  // One flat array for the weights and one for each state.
  held->state_names_ = {optimiser.states.begin(), optimiser.states.end()};
  const torch::NoGradGuard no_grad;
  for (std::size_t at = 0; at <= held->state_names_.size(); ++at) {
    held->memory_.push_back(held->Room(device));
  }
  for (std::size_t at = 0; at < held->tensors_.size(); ++at) {
    torch::Tensor& tensor = held->tensors_[at];
    const HeldParameter& parameter = held->parameters_[at];
    // The parameter keeps its identity and its shape; only its memory is now a piece of the flat
    // array.
    const torch::Tensor view =
        PieceOf(held->memory_.front(), parameter.offset, parameter.count).view(tensor.sizes());
    // The values first: `set_data` lets go of the memory that they are in.
    view.copy_(tensor);
    tensor.set_data(view);
  }
  for (torch::Tensor& buffer : held->buffers_) buffer.set_data(buffer.to(device));
  return held;
}

void HeldPart::AddToRuns(const HeldParameter& parameter) {
  if (!parameter.trains) return;
  // Neighbours with the same treatment form one run, so that most parts have very few.
  const bool goes_on = !runs_.empty() && runs_.back().decays == parameter.decays &&
                       runs_.back().offset + runs_.back().count == parameter.offset;
  if (!goes_on) runs_.push_back({.offset = parameter.offset, .decays = parameter.decays});
  runs_.back().count += parameter.count;
}

// Zeros for the part. On a processor plain memory, as numerics/ works on.
torch::Tensor HeldPart::Room(const torch::Device& device) {
  const auto floats = static_cast<std::int64_t>(floats_);
  if (!device.is_cpu() || floats == 0) return torch::zeros({floats}, device);
  // The tensor below does not own this memory; `rooms_` lives as long as the part.
  std::vector<float>& room = rooms_.emplace_back(floats_);
  return torch::from_blob(room.data(), {floats}, torch::kFloat32);
}

// Autograd leaves a parameter's first gradient as it made it: nothing is copied on the way.
void HeldPart::GiveGradients(GradientSum& sum, std::size_t offset) {
  for (std::size_t at = 0; at < tensors_.size(); ++at) {
    const HeldParameter& parameter = parameters_[at];
    torch::Tensor& gradient = tensors_[at].mutable_grad();
    // A parameter that was not used in this pass has no gradient, which counts as zeros.
    if (gradient.defined()) {
      const torch::Tensor values = gradient.contiguous();
      sum.Add(offset + parameter.offset, {values.data_ptr<float>(), parameter.count});
    } else {
      sum.AddNothing(offset + parameter.offset, parameter.count);
    }
    // The next backward pass then assigns a new one instead of adding to this.
    gradient = torch::Tensor();
  }
}

// As above, by LibTorch, which a GPU needs.
void HeldPart::GiveGradients(TensorGradientSum& sum, std::size_t offset) {
  for (std::size_t at = 0; at < tensors_.size(); ++at) {
    const HeldParameter& parameter = parameters_[at];
    torch::Tensor& gradient = tensors_[at].mutable_grad();
    if (gradient.defined()) {
      sum.Add(offset + parameter.offset, gradient);
    } else {
      sum.AddNothing(offset + parameter.offset, parameter.count);
    }
    gradient = torch::Tensor();
  }
}

void HeldPart::Update(const OptimiserOptions& options, const UpdateStep& step,
                      std::span<const float> gradient) {
  FOREBAY_CHECK(gradient.size() == floats_);
  for (const Run& run : runs_) {
    UpdateStep own = step;
    if (!run.decays) own.weight_decay = 0;
    // Weights and states of the run, all cut alike.
    std::vector<std::span<float>> pieces;
    for (const torch::Tensor& whole : memory_) {
      // Weights first, then the states, in the order of the optimiser's list.
      pieces.push_back(FloatsOf(whole).subspan(run.offset, run.count));
    }
    UpdateWeights(options, own, pieces.front(), gradient.subspan(run.offset, run.count),
                  std::span(pieces).subspan(1));
  }
}

void HeldPart::AddTrained(const torch::Tensor& gradient, TensorsToUpdate& decaying,
                          TensorsToUpdate& constant) const {
  for (const Run& run : runs_) {
    TensorsToUpdate& tensors = run.decays ? decaying : constant;
    tensors.weights.push_back(PieceOf(memory_.front(), run.offset, run.count));
    tensors.gradients.push_back(PieceOf(gradient, run.offset, run.count));
    tensors.states.resize(state_names_.size());
    for (std::size_t at = 0; at < state_names_.size(); ++at) {
      tensors.states[at].push_back(PieceOf(memory_[at + 1], run.offset, run.count));
    }
  }
}

// cpu() of a tensor on the host is the tensor itself, and not a copy.
std::vector<torch::Tensor> HeldPart::OnHost() const {
  std::vector<torch::Tensor> host;
  for (const torch::Tensor& flat : memory_) host.push_back(flat.cpu());
  for (const torch::Tensor& buffer : buffers_) host.push_back(buffer.cpu());
  return host;
}

// On a processor the host's tensors are the part's own, and there is nothing to copy.
void HeldPart::Take(const std::vector<torch::Tensor>& host) {
  const torch::NoGradGuard no_grad;
  for (std::size_t at = 0; at < host.size(); ++at) {
    torch::Tensor& own = at < memory_.size() ? memory_[at] : buffers_[at - memory_.size()];
    if (!own.is_cpu()) own.copy_(host[at]);
  }
}

void HeldPart::Publish() { Take(host_); }

std::vector<float> HeldPart::Pack() const {
  std::vector<float> packed;
  for (const torch::Tensor& tensor : OnHost()) {
    const std::span<float> floats = FloatsOf(tensor);
    packed.insert(packed.end(), floats.begin(), floats.end());
  }
  return packed;
}

Status HeldPart::Unpack(std::span<const float> packed) {
  const std::vector<torch::Tensor> host = OnHost();
  std::size_t total = 0;
  for (const torch::Tensor& tensor : host) total += FloatsOf(tensor).size();
  // The sender has another model, or another optimiser.
  if (total != packed.size()) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("part {} has {} floats, {} came", name_, total, packed.size()));
  }
  for (const torch::Tensor& tensor : host) {
    const std::span<float> target = FloatsOf(tensor);
    std::copy_n(packed.begin(), target.size(), target.begin());
    packed = packed.subspan(target.size());
  }
  Take(host);
  return {};
}

std::vector<HeldTensor> HeldPart::Tensors() {
  using Kind = HeldTensor::Kind;
  // On a processor these are the part's own tensors, on a GPU copies.
  // Kept until Publish, because the spans below point into it.
  host_ = OnHost();
  std::vector<HeldTensor> tensors;
  for (const HeldParameter& parameter : parameters_) {
    tensors.push_back({Kind::kWeight, parameter.name, parameter.shape,
                       FloatsOf(host_.front()).subspan(parameter.offset, parameter.count)});
  }
  for (std::size_t at = 0; at < buffers_.size(); ++at) {
    tensors.push_back({Kind::kBuffer, buffer_names_[at], ShapeOf(buffers_[at]),
                       FloatsOf(host_[memory_.size() + at])});
  }
  for (std::size_t which = 0; which < state_names_.size(); ++which) {
    for (const HeldParameter& parameter : parameters_) {
      tensors.push_back({Kind::kState, parameter.name + "/" + state_names_[which],
                         parameter.shape,
                         FloatsOf(host_[which + 1]).subspan(parameter.offset, parameter.count)});
    }
  }
  return tensors;
}

// The digest tells models apart, so the optimiser's state is no part of it.
std::uint64_t HeldPart::Digest() const {
  ChecksumStream stream;
  // The name as well, so that two parts that change places are noticed.
  stream.Update(std::as_bytes(std::span(name_)));
  const torch::Tensor weights = memory_.front().cpu();
  stream.Update(std::as_bytes(FloatsOf(weights)));
  for (const torch::Tensor& buffer : buffers_) {
    const torch::Tensor host = buffer.cpu();
    stream.Update(std::as_bytes(FloatsOf(host)));
  }
  return stream.Finish();
}

}  // namespace forebay::train
