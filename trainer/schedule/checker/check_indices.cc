// Point 1 of CheckPlan. Goes through every instruction once and compares each index with the size
// of what it points into, and each buffer with the instruction that makes it. The other checks rely
// on this and do no bound checks of their own.
#include "trainer/schedule/checker/plan_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace forebay::train {
namespace {

// Kinds of instructions that have the same members and the same rules.
bool IsMessage(Op op) { return op == Op::kSend || op == Op::kReceive; }
bool IsCollective(Op op) { return op == Op::kCollectiveBegin || op == Op::kCollectiveEnd; }

// The plan as a whole: numbers of replicas, stages, programs and micro-batches that fit together,
// edges that lead forward, and collectives whose members are distinct ranks. Later code divides by
// these numbers and uses them as indices.
Status CheckShape(const StepPlan& plan) {
  const Layout& layout = plan.layout;
  if (layout.replicas == 0 || layout.stages == 0 || plan.micro_batches == 0 ||
      plan.micro_batches % layout.replicas != 0 ||
      layout.stages != plan.stages.stages.size() || layout.ranks() != plan.programs.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a plan of {} replicas x {} stages with {} stage costs, {} programs "
                             "and {} micro-batches",
                             layout.replicas, layout.stages, plan.stages.stages.size(),
                             plan.programs.size(), plan.micro_batches));
  }
  for (const StageEdge& edge : plan.stages.edges) {
    // An edge backwards would make two stages wait for each other.
    if (edge.from_stage >= edge.to_stage || edge.to_stage >= layout.stages) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("an edge leads from stage {} to {} of {}", edge.from_stage,
                               edge.to_stage, layout.stages));
    }
  }
  for (const Collective& collective : plan.collectives) {
    if (collective.members.empty() || !std::ranges::is_sorted(collective.members) ||
        std::ranges::adjacent_find(collective.members) != collective.members.end() ||
        collective.members.back() >= layout.ranks()) {
      return Error(ErrorCode::kInvalidArgument,
                   "a collective's members are not distinct ranks in ascending order");
    }
  }
  return {};
}

// All three lists of an instruction hold indices of buffers of its rank.
bool BuffersExist(const RankProgram& program, const Instruction& instruction) {
  for (const auto* list : {&instruction.needs, &instruction.makes, &instruction.frees}) {
    for (const std::uint32_t buffer : *list) {
      if (buffer >= program.buffers.size()) return false;
    }
  }
  return true;
}

// The buffer of a message must be the edge's, or the micro-batch's data would get mixed up.
Status CheckMessage(const RankView& view, std::size_t at, const Instruction& instruction) {
  const std::vector<StageEdge>& edges = view.plan.stages.edges;
  if (instruction.edge >= edges.size()) return view.Fault(at, "no such edge");
  const StageEdge& edge = edges[instruction.edge];
  const bool sends = instruction.op == Op::kSend;
  const bool forward = instruction.channel == Channel::kActivation;
  // Activations are sent from the edge's first stage to its second, gradients the other way.
  const std::uint32_t here = sends == forward ? edge.from_stage : edge.to_stage;
  const std::uint32_t there = sends == forward ? edge.to_stage : edge.from_stage;
  const std::uint32_t replica = view.plan.layout.ReplicaOf(view.rank);
  if (view.stage() != here || instruction.peer != view.plan.layout.RankOf(replica, there)) {
    return view.Fault(at, "the edge does not lead between these two ranks");
  }
  const std::vector<std::uint32_t>& list = sends ? instruction.needs : instruction.makes;
  // A send needs its buffer, a receive makes it.
  if (list.size() != 1) return view.Fault(at, "a message has one buffer");
  const Buffer& buffer = view.program().buffers[list.front()];
  const BufferKind kind = forward ? (sends ? BufferKind::kOutput : BufferKind::kReceived)
                                  : (sends ? BufferKind::kLeavingGradient
                                           : BufferKind::kArrivedGradient);
  // An output that is sent along several edges is one buffer, named by the first of them.
  const bool same_tensor =
      buffer.edge < edges.size() && edges[buffer.edge].from_module == edge.from_module &&
      (kind == BufferKind::kOutput || buffer.edge == instruction.edge);
  if (buffer.kind != kind || buffer.micro_batch != instruction.micro_batch || !same_tensor ||
      buffer.bytes != edge.bytes) {
    return view.Fault(at, "its buffer is of another edge, micro-batch or size");
  }
  return {};
}

// What an instruction may bring to life.
bool MayMake(Op op, BufferKind kind) {
  switch (op) {
    case Op::kFeed: return kind == BufferKind::kInput || kind == BufferKind::kTarget;
    case Op::kForward:
      return kind == BufferKind::kSaved || kind == BufferKind::kOutput ||
             kind == BufferKind::kValue;
    case Op::kBackward: return kind == BufferKind::kLeavingGradient;
    case Op::kRecompute: return kind == BufferKind::kValue;
    case Op::kCollectiveBegin: return kind == BufferKind::kReduced;
    case Op::kReceive:
      return kind == BufferKind::kReceived || kind == BufferKind::kArrivedGradient;
    default: return false;
  }
}

// A move is of one buffer; a recomputation also makes the module's output again.
Status CheckMove(const RankView& view, std::size_t at, const Instruction& instruction) {
  // Outputs of modules may be swapped, but not dropped: other modules need them.
  const bool swaps = instruction.op == Op::kSwapOut || instruction.op == Op::kSwapEnd ||
                     instruction.op == Op::kSwapIn;
  const Buffer* moved = instruction.needs.empty()
                            ? nullptr
                            : &view.program().buffers[instruction.needs.front()];
  if (moved == nullptr || !(moved->kind == BufferKind::kSaved ||
                            (swaps && moved->kind == BufferKind::kValue))) {
    return view.Fault(at, "only what is saved for backward is moved or dropped");
  }
  // Checked for the buffer, because a move has no micro-batch of its own that counts.
  if (!view.Owns(moved->micro_batch)) {
    return view.Fault(at, "the micro-batch is another replica's");
  }
  for (const std::uint32_t made : instruction.makes) {
    const Buffer& buffer = view.program().buffers[made];
    if (buffer.module != moved->module || buffer.micro_batch != moved->micro_batch) {
      return view.Fault(at, "it makes a buffer that is not its own");
    }
  }
  return {};
}

// A module's buffers are made by that module's instruction.
bool MakesOfOther(const RankView& view, const Instruction& instruction, const Buffer& buffer) {
  if (buffer.kind == BufferKind::kSaved || buffer.kind == BufferKind::kValue) {
    return buffer.module != instruction.module;
  }
  return buffer.kind == BufferKind::kOutput && instruction.module != kAllModules &&
         CarriedBy(view, buffer.edge) != instruction.module;
}

// What other replicas send to be summed takes memory from its begin to its end.
Status CheckReducedBytes(const RankView& view, std::size_t at, const Instruction& instruction) {
  // A plan that forgets these bytes would meet its budget on paper only.
  const bool begins = instruction.op == Op::kCollectiveBegin;
  std::uint64_t bytes = 0;
  for (const std::uint32_t buffer : begins ? instruction.makes : instruction.frees) {
    bytes += view.program().buffers[buffer].bytes;
  }
  if (bytes == ReducedBytes(view.plan.collectives[instruction.collective])) return {};
  return view.Fault(at, begins ? "it makes no room for what arrives to be summed"
                               : "it does not free what arrived to be summed");
}

// The checks that all instructions share, then those of their kind. Each ends at the first fault:
// later faults of a plan that is wrong mean nothing.
Status CheckInstruction(const RankView& view, std::size_t at, const Instruction& instruction) {
  if (!BuffersExist(view.program(), instruction)) return view.Fault(at, "no such buffer");
  for (const std::uint32_t made : instruction.makes) {
    const Buffer& buffer = view.program().buffers[made];
    if (!MayMake(instruction.op, buffer.kind) ||
        (instruction.op != Op::kRecompute && buffer.micro_batch != instruction.micro_batch)) {
      return view.Fault(at, "it makes a buffer that is not its own");
    }
    if (instruction.op == Op::kForward && MakesOfOther(view, instruction, buffer)) {
      return view.Fault(at, "it makes a buffer of another module");
    }
  }
  if (IsMessage(instruction.op)) return CheckMessage(view, at, instruction);
  if (IsCollective(instruction.op)) {
    if (instruction.collective >= view.plan.collectives.size()) {
      return view.Fault(at, "no such collective");
    }
    const std::vector<std::uint32_t>& members =
        view.plan.collectives[instruction.collective].members;
    // CheckShape has found the members sorted.
    if (!std::ranges::binary_search(members, view.rank)) {
      return view.Fault(at, "the rank is no member");
    }
    return CheckReducedBytes(view, at, instruction);
  }
  const bool moves = instruction.op == Op::kSwapOut || instruction.op == Op::kSwapEnd ||
                     instruction.op == Op::kSwapIn || instruction.op == Op::kDrop ||
                     instruction.op == Op::kRecompute;
  if (moves) return CheckMove(view, at, instruction);
  if (instruction.op != Op::kUpdate && !view.Owns(instruction.micro_batch)) {
    return view.Fault(at, "the micro-batch is another replica's");
  }
  return {};
}

}  // namespace

Status CheckIndices(const StepPlan& plan) {
  FOREBAY_TRY(CheckShape(plan));
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    const RankView view{plan, rank};
    const std::vector<Instruction>& list = view.program().instructions;
    for (std::size_t at = 0; at < list.size(); ++at) {
      FOREBAY_TRY(CheckInstruction(view, at, list[at]));
    }
  }
  return {};
}

}  // namespace forebay::train
