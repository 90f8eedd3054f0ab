// A part's forward pass detaches its inputs from the graphs that made them, so that every part has
// a graph of its own. The backward pass then walks the parts from last to first: it takes the
// gradient of the part's output, lets autograd run through this one graph, and adds the gradients
// of the part's inputs to those of the parts, or stages, that they came from.
#include "trainer/exec/stage/stage_compute.h"

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "trainer/exec/device/device.h"
#include "trainer/exec/stage/autocast.h"

namespace forebay::train {
namespace {

// On a GPU: a tensor at the begin of its memory. What a kernel computes may depend on how its
// operands are aligned. A micro-batch's place in its replica's share depends on the layout, so a
// copy of its own keeps the result independent of it.
torch::Tensor AloneOnDevice(const torch::Tensor& piece, const torch::Device& device) {
  const torch::Tensor own = OnDevice(piece, device);
  return own.defined() && !own.is_cpu() && own.storage_offset() != 0 ? own.clone() : own;
}

}  // namespace

StageCompute::StageCompute(const StepPlan& plan, const StageParts& parts,
                           const StageOptions& options, StageMessages& messages,
                           StageStatistics& statistics, StageGradient& gradient,
                           bool records_saved)
    : plan_(plan),
      parts_(parts),
      options_(options),
      messages_(messages),
      statistics_(statistics),
      gradient_(gradient),
      records_saved_(records_saved),
      sources_(SourcesOf(parts.model)) {}

void StageCompute::BeginStep(const StageStep& step) {
  // Everything of the step before goes, also if that was given up half-way.
  step_ = &step;
  states_.clear();
  losses_.clear();
  score_ = {};
  // Parts are shared by the plans of training and evaluation, so the mode is set at every step.
  for (HeldPart* part : parts_.held) part->part()->train(plan_.trains);
}

Status StageCompute::Feed(const Buffer& buffer) {
  MicroBatchState& state = states_[buffer.micro_batch];
  if (buffer.kind == BufferKind::kInput) {
    FOREBAY_ASSIGN(state.input, step_->source->Input(buffer.micro_batch));
  } else {
    FOREBAY_ASSIGN(state.target, step_->source->Target(buffer.micro_batch));
  }
  // Undefined tensors stay undefined.
  state.input = AloneOnDevice(state.input, options_.device);
  state.target = AloneOnDevice(state.target, options_.device);
  return {};
}

// All that random layers may depend on: never the rank, and never the time.
Pass StageCompute::PassOf(std::uint32_t micro_batch, std::uint32_t part) {
  return {.training = plan_.trains,
          .seed = options_.seed,
          .step = step_->step,
          .micro_batch = micro_batch,
          .part = parts_.model.parts[part].name,
          .draws = 0,
          .statistics = statistics_.recorder()};
}

std::pair<std::uint32_t, std::uint32_t> StageCompute::RangeOf(std::uint32_t module) const {
  if (module == kAllModules) return {parts_.begin, parts_.end()};
  return {module, module + 1};
}

// A value is made here or has arrived from another stage.
torch::Tensor StageCompute::ValueOf(std::uint32_t micro_batch, std::uint32_t part) {
  const auto& values = states_[micro_batch].values;
  const auto made = values.find(part);
  // Values of this stage come first: a part's output is never also received.
  return made != values.end() ? made->second : messages_.ReceivedValue(micro_batch, part);
}

void StageCompute::Forward(std::uint32_t micro_batch, std::uint32_t module) {
  statistics_.Begin(micro_batch);
  // Without it an evaluation would build graphs and keep all values.
  const torch::AutoGradMode gradients(plan_.trains);
  const auto [first, last] = RangeOf(module);
  for (std::uint32_t part = first; part < last; ++part) {
    if (step_->samples[micro_batch] == 0) {
      // An evaluation's last micro-batches may be empty, and not every layer takes such a tensor.
      states_[micro_batch].values[part] =
          OnDevice(messages_.RoomFor(micro_batch, part), options_.device);
    } else {
      ForwardPart(part, PassOf(micro_batch, part), false);
    }
  }
  statistics_.End();
}

void StageCompute::ForwardPart(std::uint32_t part, Pass pass, bool again) {
  const std::uint32_t micro_batch = pass.micro_batch;
  MicroBatchState& state = states_[micro_batch];
  PartGraph graph;
  if (part == 0) graph.leaves.push_back(state.input);
  for (const std::uint32_t source : sources_[part]) {
    const torch::Tensor leaf = ValueOf(micro_batch, source).detach();
    graph.leaves.push_back(plan_.trains ? WithGradient(leaf) : leaf);
  }
  // Recording lasts for the forward pass of this part only, so that the list is of its graph.
  std::optional<SavedTensorRecording> recording;
  if (records_saved_) recording.emplace(graph.saved);
  {
    // One part: casts that autocast keeps would tie graphs of parts together.
    const AutocastScope autocast(options_.precision, options_.device.type());
    graph.root =
        parts_.held[part - parts_.begin]->part()->Forward(graph.leaves, pass).contiguous();
  }
  const bool ends = parts_.IsLastOfModel(part);
  // A value that is still there may be on its way to another stage: it stays as it is.
  if (!again || ends || !state.values.contains(part)) state.values[part] = graph.root.detach();
  if (ends) EvaluateLoss(state, graph, micro_batch, again);
  if (plan_.trains) state.graphs[part] = std::move(graph);
}

void StageCompute::EvaluateLoss(MicroBatchState& state, PartGraph& graph,
                                std::uint32_t micro_batch, bool again) {
  const torch::Tensor output = graph.root.to(torch::kFloat32);
  if (!plan_.trains) {
    const Score score = parts_.model.loss->Evaluate(output, state.target);
    score_.sum += score.sum;
    score_.samples += score.samples;
  }
  const torch::Tensor loss = parts_.model.loss->Sum(output, state.target);
  // The number is read in Outcome(), after the step: reading it here would make the processor wait
  // for the GPU, and the GPU idle after that.
  if (!again) losses_.emplace_back(micro_batch, loss.detach());
  graph.root = loss / static_cast<double>(step_->SampleCount());
}

// The graph holds what autograd has saved; with it this goes.
void StageCompute::Drop(std::uint32_t micro_batch, std::uint32_t module) {
  MicroBatchState& state = states_[micro_batch];
  if (module == kAllModules) state.graphs.clear();
  state.graphs.erase(module);
}

void StageCompute::Recompute(std::uint32_t micro_batch, std::uint32_t module) {
  const torch::AutoGradMode gradients(true);
  const auto [first, last] = RangeOf(module);
  for (std::uint32_t part = first; part < last; ++part) {
    Pass pass = PassOf(micro_batch, part);
    pass.statistics = nullptr;  // they were recorded in the first pass
    ForwardPart(part, std::move(pass), true);
  }
}

void StageCompute::Backward(std::uint32_t micro_batch, std::uint32_t module) {
  MicroBatchState& state = states_[micro_batch];
  const auto [first, last] = RangeOf(module);
  // Users in later stages come after all users in this one, so their gradients are summed first.
  if (last == parts_.end()) {
    for (auto& [part, gradient] : messages_.ArrivedGradients(micro_batch)) {
      AddGradient(state.sums[part], gradient);
    }
  }
  for (std::uint32_t part = last; part-- > first;) {
    BackwardPart(micro_batch, part);
    // Right away, while the gradients are in the caches.
    gradient_.Take(part - parts_.begin);
  }
  // The stage's own first part comes last: only now the micro-batch is done here.
  if (first != parts_.begin) return;
  messages_.CompleteLeavingGradients(micro_batch);
  state.sums.clear();
  gradient_.EndMicroBatch(plan_.MicroBatchesPerReplica());
}

void StageCompute::BackwardPart(std::uint32_t micro_batch, std::uint32_t part) {
  MicroBatchState& state = states_[micro_batch];
  PartGraph& graph = state.graphs.at(part);
  graph.saved.clear();  // all are back; autograd frees one after the other
  // The first parts of a model may have nothing to learn, and pass no gradient on.
  const bool learns = graph.root.requires_grad();
  if (parts_.IsLastOfModel(part)) {
    if (learns) torch::autograd::backward({graph.root}, {});
  } else {
    if (learns) torch::autograd::backward({graph.root}, {state.sums.at(part)});
    state.sums.erase(part);
  }
  const std::size_t first = part == 0 ? 1 : 0;  // the micro-batch's input has no gradient
  for (std::size_t at = 0; at < sources_[part].size(); ++at) {
    const std::uint32_t source = sources_[part][at];
    torch::Tensor gradient = graph.leaves[first + at].grad();
    // The part does not depend on this input; the plan sends a gradient all the same.
    if (!gradient.defined()) gradient = torch::zeros_like(graph.leaves[first + at]);
    if (source >= parts_.begin) {
      AddGradient(state.sums[source], gradient);
    } else {
      messages_.AddLeavingGradient(micro_batch, source, part, gradient);
    }
  }
  // Frees what the graph saved as soon as it is used up, which the planned peak counts on.
  graph = {};
}

const torch::Tensor& StageCompute::Output(std::uint32_t micro_batch, std::uint32_t part) const {
  return states_.at(micro_batch).values.at(part);
}

// A buffer of the plan stands for tensors here. They go when the plan says so, which is what the
// checked peak of memory relies on.
void StageCompute::Release(const Buffer& buffer) {
  const auto found = states_.find(buffer.micro_batch);
  if (found == states_.end()) return;
  MicroBatchState& state = found->second;
  switch (buffer.kind) {
    case BufferKind::kInput: state.input = torch::Tensor(); break;
    case BufferKind::kTarget: state.target = torch::Tensor(); break;
    case BufferKind::kSaved:
      if (buffer.module == kAllModules) {
        state.graphs.clear();
        state.values.clear();
      }
      state.graphs.erase(buffer.module);
      break;
    case BufferKind::kValue: state.values.erase(buffer.module); break;
    case BufferKind::kOutput:
      state.values.erase(plan_.stages.edges[buffer.edge].from_module);
      break;
    case BufferKind::kReceived:
    case BufferKind::kArrivedGradient:
    case BufferKind::kLeavingGradient:
    case BufferKind::kReduced: break;  // of StageMessages, or of the collective
  }
}

StageOutcome StageCompute::Outcome() {
  StageOutcome outcome;
  outcome.score = score_;
  for (const auto& [micro_batch, loss] : losses_) {
    const double value = loss.item<double>();
    outcome.loss_sum += value;
    if (!std::isfinite(value)) outcome.not_finite.push_back(micro_batch);
  }
  losses_.clear();
  // Also where nothing was read: times that are taken after this include all of the GPU's work.
  SynchroniseComputation(options_.device);
  return outcome;
}

}  // namespace forebay::train
