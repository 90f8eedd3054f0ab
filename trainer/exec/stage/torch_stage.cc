// Receives the plan's instructions and hands each to the object that carries it out. Exceptions of
// LibTorch become errors here, so that none of the objects needs to catch them. The order of the
// members matters: later ones refer to earlier ones.
#include "trainer/exec/stage/torch_stage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/core/without_exceptions.h"

namespace forebay::train {
namespace {

// Only a stage that swaps records what autograd saves, which costs time.
bool Swaps(const StepPlan& plan, std::uint32_t rank) {
  const std::vector<Instruction>& list = plan.programs.at(rank).instructions;
  // The plan decides and not the configuration: a budget may be met without any swap.
  return std::ranges::find(list, Op::kSwapOut, &Instruction::op) != list.end();
}

// Runs `work`, which may throw, and returns its exception as an Error.
template <typename Callable>
Status GuardedStage(const char* what, Callable&& work) {
  return WithoutExceptions(what, [&]() -> Status {
    work();
    return {};
  });
}

}  // namespace

TorchStage::TorchStage(const Model& model, const StepPlan& plan, const StageSplit& split,
                       std::uint32_t rank, const std::vector<PartOutput>& outputs,
                       std::vector<HeldPart*> parts, const StageOptions& options)
    : plan_(plan),
      rank_(rank),
      options_(options),
      parts_{.model = model,
             .begin = split.begins.at(plan.layout.StageOf(rank)),
             .held = std::move(parts)},
      messages_(plan.stages.edges, outputs, options.device),
      statistics_(plan, parts_.held),
      gradient_(parts_.held, options.sum_order, options.arithmetic, options.device),
      norm_(gradient_, parts_.begin, parts_.held.size(), model.parts.size()),
      compute_(plan, parts_, options_, messages_, statistics_, gradient_, Swaps(plan, rank)) {
  if (Swaps(plan, rank)) swap_.emplace(model, options_.swap, options_.device);
}

void TorchStage::BeginStep(const StageStep& step) {
  FOREBAY_CHECK(step.samples.size() == plan_.micro_batches && step.source != nullptr);
  // A copy: the objects of the stage refer to it until the next step.
  step_ = step;
  skipped_ = false;
  // Before the tensors go that its transfers point to.
  if (swap_) swap_->BeginStep();
  compute_.BeginStep(step_);
  messages_.BeginStep(step_.samples);
  gradient_.BeginStep();
  statistics_.BeginStep();
}

// After the step: reading a loss waits for a GPU.
Result<StageOutcome> TorchStage::Outcome() {
  return WithoutExceptions("loss", [&]() -> Result<StageOutcome> {
    StageOutcome outcome = compute_.Outcome();
    outcome.skipped = skipped_;
    return outcome;
  });
}

Status TorchStage::Feed(const Buffer& buffer) {
  return WithoutExceptions("feed", [&] { return compute_.Feed(buffer); });
}

Status TorchStage::Forward(std::uint32_t micro_batch, std::uint32_t module) {
  return GuardedStage("forward pass", [&] { compute_.Forward(micro_batch, module); });
}

Status TorchStage::Backward(std::uint32_t micro_batch, std::uint32_t module) {
  return GuardedStage("backward pass", [&] { compute_.Backward(micro_batch, module); });
}

Result<std::span<const std::byte>> TorchStage::Outgoing(const Buffer& buffer) {
  return WithoutExceptions("message", [&]() -> Result<std::span<const std::byte>> {
    if (buffer.kind != BufferKind::kOutput) return messages_.OutgoingGradient(buffer);
    // The same output may leave along several edges.
    const std::uint32_t part = plan_.stages.edges[buffer.edge].from_module;
    return messages_.OutgoingValue(buffer, compute_.Output(buffer.micro_batch, part));
  });
}

Result<std::span<std::byte>> TorchStage::Incoming(const Buffer& buffer) {
  return WithoutExceptions("message", [&]() -> Result<std::span<std::byte>> {
    return messages_.Incoming(buffer);
  });
}

void TorchStage::Release(const Buffer& buffer) {
  // Both are told, because only they know which of them has the tensor.
  compute_.Release(buffer);
  messages_.Release(buffer);
}

Result<std::unique_ptr<PendingCollective>> TorchStage::MakeCollective(std::uint32_t id,
                                                                      const CollectiveTag& tag) {
  using Pending = std::unique_ptr<PendingCollective>;
  const Collective& collective = plan_.collectives[id];
  FOREBAY_ASSIGN(Members members, MakeMembers(collective.members, rank_));
  return WithoutExceptions("reduction", [&]() -> Result<Pending> {
    // The memory that a collective works on must exist until it has ended, so each object keeps
    // its own.
    switch (collective.kind) {
      case CollectiveKind::kGradients:
        return Pending(std::make_unique<AllReduce<float>>(
            std::move(members), tag, gradient_.NextBucket(collective.bytes / sizeof(float))));
      case CollectiveKind::kStatistics: return statistics_.Gather(std::move(members), tag);
      case CollectiveKind::kNorms: break;
    }
    return norm_.Gather(std::move(members), tag);
  });
}

// Collectives write where their results belong; nothing is left to do.
Status TorchStage::EndCollective(std::uint32_t) { return {}; }

Status TorchStage::Move(Op op, const Buffer& buffer) {
  return WithoutExceptions("moving what is saved", [&]() -> Status {
    switch (op) {
      case Op::kSwapOut: return swap_->Out(buffer, compute_.state(buffer.micro_batch));
      case Op::kSwapEnd: swap_->EndOut(buffer); break;
      case Op::kSwapIn: swap_->In(buffer); break;
      case Op::kDrop: compute_.Drop(buffer.micro_batch, buffer.module); break;
      case Op::kRecompute: compute_.Recompute(buffer.micro_batch, buffer.module); break;
      // The checked plan gives no other instruction to this function.
      default: FOREBAY_CHECK(false);
    }
    return {};
  });
}

Status TorchStage::AwaitBack(const Buffer& buffer) {
  return GuardedStage("swapping in", [&] { swap_->AwaitBack(buffer); });
}

Status TorchStage::Update() {
  return GuardedStage("update", [&] {
    // If norms were gathered, all stages know whether the gradient is finite, and leave the update
    // out together.
    double scale = 1.0;
    if (options_.clip_norm > 0 || options_.skips_not_finite) {
      const double squared = norm_.TakeSquared();
      skipped_ = !std::isfinite(squared);
      scale = ClipScale(squared, options_.clip_norm);
    } else {
      // Only this stage knows. Other stages may update their weights: the run ends with this step.
      skipped_ = !gradient_.IsFinite();
    }
    // Before anything is changed: a skipped step must leave weights and statistics as they were.
    if (skipped_) return;
    statistics_.Apply(options_.first_replica_statistics ? plan_.MicroBatchesPerReplica()
                                                        : plan_.micro_batches);
    const UpdateStep update{.learning_rate = step_.learning_rate,
                            .weight_decay = options_.weight_decay,
                            .gradient_scale = scale,
                            // The formulas of Adam count from 1.
                            .number = step_.step + 1};
    gradient_.Update(options_.optimiser, update);
  });
}

}  // namespace forebay::train
