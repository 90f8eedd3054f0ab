#include "trainer/schedule/plan_matching.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
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
    case Op::kForward:
      return kind == BufferKind::kSaved || kind == BufferKind::kOutput ||
             kind == BufferKind::kValue;
    case Op::kBackward: return kind == BufferKind::kLeavingGradient;
    case Op::kRecompute: return kind == BufferKind::kValue;
    case Op::kReceive:
      return kind == BufferKind::kReceived || kind == BufferKind::kArrivedGradient;
    default: return false;
  }
}

// A move is of one buffer; a recomputation also makes the module's output again.
Status CheckMove(const RankView& view, std::size_t at, const Instruction& instruction) {
  const bool swaps = instruction.op == Op::kSwapOut || instruction.op == Op::kSwapEnd ||
                     instruction.op == Op::kSwapIn;
  const Buffer* moved = instruction.needs.empty()
                            ? nullptr
                            : &view.program().buffers[instruction.needs.front()];
  if (moved == nullptr || !(moved->kind == BufferKind::kSaved ||
                            (swaps && moved->kind == BufferKind::kValue))) {
    return view.Fault(at, "only what is saved for backward is moved or dropped");
  }
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

// The module whose output an edge carries; kAllModules where there is no such edge.
std::uint32_t CarriedBy(const RankView& view, std::uint32_t edge) {
  const std::vector<StageEdge>& edges = view.plan.stages.edges;
  return edge < edges.size() ? edges[edge].from_module : kAllModules;
}

// A module's buffers are made by that module's instruction.
bool MakesOfOther(const RankView& view, const Instruction& instruction, const Buffer& buffer) {
  if (buffer.kind == BufferKind::kSaved || buffer.kind == BufferKind::kValue) {
    return buffer.module != instruction.module;
  }
  return buffer.kind == BufferKind::kOutput && instruction.module != kAllModules &&
         CarriedBy(view, buffer.edge) != instruction.module;
}

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
    if (!std::ranges::binary_search(members, view.rank)) {
      return view.Fault(at, "the rank is no member");
    }
    return {};
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

// Counts the buffers of that kind and micro-batch among those an instruction needs.
std::size_t CountNeeds(const RankView& view, const Instruction& instruction, BufferKind kind,
                       std::uint32_t micro_batch) {
  return static_cast<std::size_t>(
      std::ranges::count_if(instruction.needs, [&](std::uint32_t index) {
        const Buffer& buffer = view.program().buffers[index];
        return buffer.kind == kind && buffer.micro_batch == micro_batch;
      }));
}

// What computing one module, or with kAllModules a whole stage, needs.
struct Computation {
  std::uint32_t module = kAllModules;
  std::uint32_t micro_batch = 0;
  bool backward = false;
};

// Whether `instruction` waits for a module's output, which is kept by itself or sent from here.
bool NeedsOutput(const RankView& view, const Instruction& instruction, std::uint32_t module,
                 std::uint32_t micro_batch) {
  return std::ranges::any_of(instruction.needs, [&](std::uint32_t index) {
    const Buffer& buffer = view.program().buffers[index];
    if (buffer.micro_batch != micro_batch) return false;
    return (buffer.kind == BufferKind::kValue && buffer.module == module) ||
           (buffer.kind == BufferKind::kOutput && CarriedBy(view, buffer.edge) == module);
  });
}

// Outputs of the modules of this stage that `wanted.module` takes.
Status CheckSources(const RankView& view, std::size_t at, const Instruction& instruction,
                    const Computation& wanted) {
  const StageCost& stage = view.plan.stages.stages[view.stage()];
  for (const std::uint32_t source : stage.Module(wanted.module).sources) {
    if (stage.Has(source) && !NeedsOutput(view, instruction, source, wanted.micro_batch)) {
      return view.Fault(at, "it does not wait for all of its inputs");
    }
  }
  if (!wanted.backward) return {};
  const bool saved = std::ranges::any_of(instruction.needs, [&](std::uint32_t index) {
    const Buffer& buffer = view.program().buffers[index];
    return buffer.kind == BufferKind::kSaved && buffer.module == wanted.module &&
           buffer.micro_batch == wanted.micro_batch;
  });
  if (!saved || !NeedsOutput(view, instruction, wanted.module, wanted.micro_batch)) {
    return view.Fault(at, "it does not wait for all of its gradients and saved values");
  }
  return {};
}

Status CheckInputs(const RankView& view, std::size_t at, const Instruction& instruction,
                   const Computation& wanted) {
  const StageCost& cost = view.plan.stages.stages[view.stage()];
  const std::vector<StageEdge>& edges = view.plan.stages.edges;
  const bool whole = wanted.module == kAllModules;
  const auto arriving = static_cast<std::size_t>(
      std::ranges::count_if(edges, [&](const StageEdge& edge) {
        return edge.to_stage == view.stage() &&
               (whole || std::ranges::find(edge.to_modules, wanted.module) !=
                             edge.to_modules.end());
      }));
  // Gradients of all outputs are summed, last user first, before the first module goes backward.
  const bool sums = whole || wanted.module + 1 == cost.EndModule();
  const auto leaving = static_cast<std::size_t>(
      std::ranges::count_if(edges, [&](const StageEdge& edge) {
        return edge.from_stage == view.stage() &&
               (sums || edge.from_module == wanted.module);
      }));
  const bool first = view.stage() == 0 && (whole || wanted.module == 0);
  const bool last = view.stage() + 1 == view.plan.layout.stages && sums;
  const auto needs = [&](BufferKind kind) {
    return CountNeeds(view, instruction, kind, wanted.micro_batch);
  };
  if (needs(BufferKind::kReceived) != arriving || needs(BufferKind::kInput) != (first ? 1U : 0U) ||
      needs(BufferKind::kTarget) != (last ? 1U : 0U)) {
    return view.Fault(at, "it does not wait for all of its inputs");
  }
  if (wanted.backward && (needs(BufferKind::kSaved) == 0 ||
                          needs(BufferKind::kArrivedGradient) != leaving)) {
    return view.Fault(at, "it does not wait for all of its gradients and saved values");
  }
  return whole ? Status() : CheckSources(view, at, instruction, wanted);
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

// Follows the passes of one rank: each of its micro-batches goes once forward and once backward,
// all modules at a time or one by one in order.
class PassCount {
 public:
  explicit PassCount(const RankView& view)
      : view_(view),
        stage_(view.plan.stages.stages[view.stage()]),
        forward_(view.plan.MicroBatchesPerReplica()),
        backward_(forward_.size()) {}

  Status Count(std::size_t at, const Instruction& instruction) {
    const bool backward = instruction.op == Op::kBackward;
    Progress& progress = Of(backward, instruction.micro_batch);
    const auto modules = static_cast<std::uint32_t>(stage_.modules.size());
    if (backward && open_ && *open_ != instruction.micro_batch) {
      return view_.Fault(at, "another micro-batch is half way backward");
    }
    if (instruction.module == kAllModules) {
      if (progress.modules != 0) return view_.Fault(at, "some of its modules are computed");
      ++progress.times;
      return {};
    }
    const std::uint32_t next = backward ? stage_.EndModule() - 1 - progress.modules
                                        : stage_.first_module + progress.modules;
    if (!stage_.Has(instruction.module) || instruction.module != next) {
      return view_.Fault(at, "its modules are not computed in order");
    }
    const bool ends = ++progress.modules == modules;
    if (backward) open_ = instruction.micro_batch;
    if (!ends) return {};
    open_.reset();
    progress = {.times = progress.times + 1, .modules = 0};
    return {};
  }

  Status Finish() const {
    const std::uint32_t wanted = view_.plan.trains ? 1 : 0;
    for (std::uint32_t index = 0; index < forward_.size(); ++index) {
      if (forward_[index].times == 1 && backward_[index].times == wanted &&
          forward_[index].modules == 0 && backward_[index].modules == 0) {
        continue;
      }
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("rank {}: micro-batch {} is computed {} times forward and {} "
                               "times backward instead of 1 and {}",
                               view_.rank, view_.first_micro_batch() + index,
                               forward_[index].times, backward_[index].times, wanted));
    }
    return {};
  }

 private:
  struct Progress {
    std::uint32_t times = 0;
    std::uint32_t modules = 0;  // of a pass that is not complete
  };
  Progress& Of(bool backward, std::uint32_t micro_batch) {
    return (backward ? backward_ : forward_)[micro_batch - view_.first_micro_batch()];
  }

  const RankView& view_;
  const StageCost& stage_;
  std::vector<Progress> forward_;
  std::vector<Progress> backward_;
  std::optional<std::uint32_t> open_;  // the micro-batch that is half way backward
};

Status CheckRankWork(const RankView& view) {
  PassCount passes(view);
  std::size_t updates = 0;
  const std::vector<Instruction>& list = view.program().instructions;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const Op op = list[at].op;
    if (updates > 0) return view.Fault(at, "it comes after the update");
    if (op == Op::kUpdate) ++updates;
    if (op == Op::kForward || op == Op::kBackward) {
      FOREBAY_TRY(passes.Count(at, list[at]));
      FOREBAY_TRY(CheckInputs(view, at, list[at],
                              {.module = list[at].module,
                               .micro_batch = list[at].micro_batch,
                               .backward = op == Op::kBackward}));
    } else if (op == Op::kRecompute) {
      const Buffer& again = view.program().buffers[list[at].needs.front()];
      if (again.module == kAllModules) continue;  // the inputs stay until backward needs them
      if (!view.plan.stages.stages[view.stage()].Has(again.module)) {
        return view.Fault(at, "the module is another stage's");
      }
      FOREBAY_TRY(CheckInputs(view, at, list[at],
                              {.module = again.module, .micro_batch = again.micro_batch}));
    }
  }
  FOREBAY_TRY(passes.Finish());
  const std::uint32_t wanted = view.plan.trains ? 1 : 0;
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
                     Describe(plan, rank, plan.programs[rank].instructions[at]));
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
