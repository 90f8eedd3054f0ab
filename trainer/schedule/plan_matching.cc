#include "trainer/schedule/plan_matching.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace forebay::train {
namespace {

bool IsMessage(Op op) { return op == Op::kSend || op == Op::kReceive; }
bool IsCollective(Op op) { return op == Op::kCollectiveBegin || op == Op::kCollectiveEnd; }

// One rank's list, with the means to say what is wrong in it.
struct RankView {
  const StepPlan& plan;
  std::uint32_t rank;

  const RankProgram& program() const { return plan.programs[rank]; }
  std::uint32_t stage() const { return plan.layout.StageOf(rank); }
  std::uint32_t first_micro_batch() const {
    return plan.layout.ReplicaOf(rank) * plan.MicroBatchesPerReplica();
  }
  bool Owns(std::uint32_t micro_batch) const {
    return micro_batch >= first_micro_batch() &&
           micro_batch - first_micro_batch() < plan.MicroBatchesPerReplica();
  }
  Error Fault(std::size_t at, std::string_view what) const {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: {}", InstructionName(plan, rank, at), what));
  }
};

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
  const std::uint32_t here = sends == forward ? edge.from_stage : edge.to_stage;
  const std::uint32_t there = sends == forward ? edge.to_stage : edge.from_stage;
  const std::uint32_t replica = view.plan.layout.ReplicaOf(view.rank);
  if (view.stage() != here || instruction.peer != view.plan.layout.RankOf(replica, there)) {
    return view.Fault(at, "the edge does not lead between these two ranks");
  }
  const std::vector<std::uint32_t>& list = sends ? instruction.needs : instruction.makes;
  if (list.size() != 1) return view.Fault(at, "a message has one buffer");
  const Buffer& buffer = view.program().buffers[list.front()];
  const BufferKind kind = forward ? (sends ? BufferKind::kOutput : BufferKind::kReceived)
                                  : (sends ? BufferKind::kLeavingGradient
                                           : BufferKind::kArrivedGradient);
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
    case Op::kForward: return kind == BufferKind::kSaved || kind == BufferKind::kOutput;
    case Op::kBackward: return kind == BufferKind::kLeavingGradient;
    case Op::kReceive:
      return kind == BufferKind::kReceived || kind == BufferKind::kArrivedGradient;
    default: return false;
  }
}

Status CheckInstruction(const RankView& view, std::size_t at, const Instruction& instruction) {
  if (!BuffersExist(view.program(), instruction)) return view.Fault(at, "no such buffer");
  for (const std::uint32_t made : instruction.makes) {
    const Buffer& buffer = view.program().buffers[made];
    if (!MayMake(instruction.op, buffer.kind) ||
        buffer.micro_batch != instruction.micro_batch) {
      return view.Fault(at, "it makes a buffer that is not its own");
    }
  }
  if (IsMessage(instruction.op)) return CheckMessage(view, at, instruction);
  if (IsCollective(instruction.op)) {
    if (instruction.collective >= view.plan.collectives.size()) {
      return view.Fault(at, "no such collective");
    }
    const std::vector<std::uint32_t>& members =
        view.plan.collectives[instruction.collective].members;
    if (!std::ranges::binary_search(members, view.rank)) {
      return view.Fault(at, "the rank is no member");
    }
    return {};
  }
  const bool moves = instruction.op == Op::kSwapOut || instruction.op == Op::kSwapIn ||
                     instruction.op == Op::kDrop || instruction.op == Op::kRecompute;
  if (moves && (instruction.needs.empty() ||
                view.program().buffers[instruction.needs.front()].kind != BufferKind::kSaved)) {
    return view.Fault(at, "only what is saved for backward is moved or dropped");
  }
  if (instruction.op != Op::kUpdate && !view.Owns(instruction.micro_batch)) {
    return view.Fault(at, "the micro-batch is another replica's");
  }
  return {};
}

// Counts the buffers of that kind and micro-batch among those an instruction needs.
std::size_t CountNeeds(const RankView& view, const Instruction& instruction, BufferKind kind) {
  return static_cast<std::size_t>(
      std::ranges::count_if(instruction.needs, [&](std::uint32_t index) {
        const Buffer& buffer = view.program().buffers[index];
        return buffer.kind == kind && buffer.micro_batch == instruction.micro_batch;
      }));
}

Status CheckInputs(const RankView& view, std::size_t at, const Instruction& instruction) {
  const std::uint32_t stage = view.stage();
  const std::vector<StageEdge>& edges = view.plan.stages.edges;
  const auto arriving = static_cast<std::size_t>(std::ranges::count(
      edges, stage, &StageEdge::to_stage));
  const auto leaving = static_cast<std::size_t>(std::ranges::count(
      edges, stage, &StageEdge::from_stage));
  const bool backward = instruction.op == Op::kBackward;
  const bool first = stage == 0;
  const bool last = stage + 1 == view.plan.layout.stages;
  if (CountNeeds(view, instruction, BufferKind::kReceived) != arriving ||
      CountNeeds(view, instruction, BufferKind::kInput) != (first ? 1U : 0U) ||
      CountNeeds(view, instruction, BufferKind::kTarget) != (last ? 1U : 0U)) {
    return view.Fault(at, "it does not wait for all of its inputs");
  }
  if (backward && (CountNeeds(view, instruction, BufferKind::kSaved) == 0 ||
                   CountNeeds(view, instruction, BufferKind::kArrivedGradient) != leaving)) {
    return view.Fault(at, "it does not wait for all of its gradients and saved values");
  }
  return {};
}

// Sums that begin before all of their parts are there are wrong without anybody noticing.
Status CheckSums(const RankView& view) {
  const std::vector<Instruction>& list = view.program().instructions;
  const auto last = [&](Op op, CollectiveKind kind) {
    std::size_t found = 0;
    for (std::size_t at = 0; at < list.size(); ++at) {
      const bool collective = op == Op::kCollectiveEnd;
      if (list[at].op == op &&
          (!collective || view.plan.collectives[list[at].collective].kind == kind)) {
        found = at;
      }
    }
    return found;
  };
  const std::size_t backward = last(Op::kBackward, {});
  const std::size_t reduced = last(Op::kCollectiveEnd, CollectiveKind::kGradients);
  for (std::size_t at = 0; at < list.size(); ++at) {
    if (list[at].op != Op::kCollectiveBegin) continue;
    if (at < backward) return view.Fault(at, "it begins before the last backward pass");
    const CollectiveKind kind = view.plan.collectives[list[at].collective].kind;
    if (kind == CollectiveKind::kNorms && at < reduced) {
      return view.Fault(at, "it begins before the gradients are summed");
    }
  }
  return {};
}

Status CheckRankWork(const RankView& view) {
  const std::uint32_t share = view.plan.MicroBatchesPerReplica();
  std::vector<std::uint32_t> forward(share);
  std::vector<std::uint32_t> backward(share);
  std::size_t updates = 0;
  const std::vector<Instruction>& list = view.program().instructions;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const Op op = list[at].op;
    if (updates > 0) return view.Fault(at, "it comes after the update");
    if (op == Op::kUpdate) ++updates;
    if (op != Op::kForward && op != Op::kBackward) continue;
    ++(op == Op::kForward ? forward : backward)[list[at].micro_batch - view.first_micro_batch()];
    FOREBAY_TRY(CheckInputs(view, at, list[at]));
  }
  const std::uint32_t wanted = view.plan.trains ? 1 : 0;
  for (std::uint32_t index = 0; index < share; ++index) {
    if (forward[index] == 1 && backward[index] == wanted) continue;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("rank {}: micro-batch {} is computed {} times forward and {} times "
                             "backward instead of 1 and {}",
                             view.rank, view.first_micro_batch() + index, forward[index],
                             backward[index], wanted));
  }
  if (updates != wanted) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("rank {}: {} updates instead of {}", view.rank, updates, wanted));
  }
  return CheckSums(view);
}

// Both ends of one channel between two ranks, as indices into their lists.
struct ChannelEnds {
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

}  // namespace

std::string InstructionName(const StepPlan& plan, std::uint32_t rank, std::size_t at) {
  return fmt::format("rank {} instruction {} ({})", rank, at,
                     Describe(plan, plan.programs[rank].instructions[at]));
}

Status CheckPieces(const StepPlan& plan) {
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

Status CheckWork(const StepPlan& plan) {
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    FOREBAY_TRY(CheckRankWork({plan, rank}));
  }
  return {};
}

Result<MessagePartners> MatchMessages(const StepPlan& plan) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, Channel>, ChannelEnds> channels;
  MessagePartners partners(plan.programs.size());
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    const std::vector<Instruction>& list = plan.programs[rank].instructions;
    partners[rank].assign(list.size(), kNoPartner);
    for (std::uint32_t at = 0; at < list.size(); ++at) {
      if (list[at].op == Op::kSend) {
        channels[{rank, list[at].peer, list[at].channel}].sends.push_back(at);
      } else if (list[at].op == Op::kReceive) {
        channels[{list[at].peer, rank, list[at].channel}].receives.push_back(at);
      }
    }
  }
  for (const auto& [key, ends] : channels) {
    const auto [from, to, channel] = key;
    const std::size_t common = std::min(ends.sends.size(), ends.receives.size());
    for (std::size_t at = 0; at < common; ++at) {
      const Instruction& send = plan.programs[from].instructions[ends.sends[at]];
      const Instruction& receive = plan.programs[to].instructions[ends.receives[at]];
      if (send.edge != receive.edge || send.micro_batch != receive.micro_batch) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("{} meets {}: the order of messages differs",
                                 InstructionName(plan, from, ends.sends[at]),
                                 InstructionName(plan, to, ends.receives[at])));
      }
      partners[from][ends.sends[at]] = ends.receives[at];
      partners[to][ends.receives[at]] = ends.sends[at];
    }
    if (ends.sends.size() > common) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: nobody receives it",
                               InstructionName(plan, from, ends.sends[common])));
    }
    if (ends.receives.size() > common) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: nobody sends it",
                               InstructionName(plan, to, ends.receives[common])));
    }
  }
  return partners;
}

Status CheckCollectiveOrder(const StepPlan& plan) {
  std::vector<std::vector<std::uint32_t>> begun(plan.programs.size());
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    std::vector<std::uint32_t> open;
    const std::vector<Instruction>& list = plan.programs[rank].instructions;
    for (std::size_t at = 0; at < list.size(); ++at) {
      const std::uint32_t id = list[at].collective;
      if (list[at].op == Op::kCollectiveBegin) {
        if (std::ranges::find(begun[rank], id) != begun[rank].end()) {
          return RankView{plan, rank}.Fault(at, "it begins for the second time");
        }
        begun[rank].push_back(id);
        open.push_back(id);
      } else if (list[at].op == Op::kCollectiveEnd && std::erase(open, id) == 0) {
        return RankView{plan, rank}.Fault(at, "it has not begun");
      } else if (list[at].op == Op::kUpdate && !open.empty()) {
        return RankView{plan, rank}.Fault(at, "a collective is still under way");
      }
    }
    if (!open.empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("rank {} does not end collective {}", rank, open.front()));
    }
  }
  // For every two members: the collectives that they share, in the order of each.
  for (std::uint32_t rank = 0; rank < begun.size(); ++rank) {
    for (std::uint32_t other = 0; other < begun.size(); ++other) {
      const auto shared = [&](std::uint32_t of) {
        std::vector<std::uint32_t> ids;
        for (const std::uint32_t id : begun[of]) {
          const std::vector<std::uint32_t>& members = plan.collectives[id].members;
          if (std::ranges::binary_search(members, rank) &&
              std::ranges::binary_search(members, other)) {
            ids.push_back(id);
          }
        }
        return ids;
      };
      if (rank < other && shared(rank) != shared(other)) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("ranks {} and {} do not begin the collectives they share in the "
                                 "same order",
                                 rank, other));
      }
    }
  }
  return {};
}

}  // namespace forebay::train
