// MoveSaved rewrites the lists of a finished plan. A forward pass over a whole stage becomes one
// instruction per module, each followed by the swap or drop of what the module saved. A backward
// pass becomes one instruction per module in reverse, each preceded by what brings its inputs back.
// Messages, collectives and their order stay as they are, so what was proved about them stays
// proved; bytes and waits are proved again by CheckPlan.
#include "trainer/schedule/memory/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace forebay::train {
namespace {

bool IsPass(Op op) { return op == Op::kForward || op == Op::kBackward; }

// Rewrites the program of one rank.
class RankRewriter {
 public:
  RankRewriter(const StepPlan& plan, std::uint32_t rank, const RankKeeping& keeping)
      : plan_(plan),
        stage_(plan.stages.stages[plan.layout.StageOf(rank)]),
        first_micro_batch_(plan.layout.ReplicaOf(rank) * plan.MicroBatchesPerReplica()),
        keeping_(keeping),
        old_(plan.programs[rank]) {
    program_.resident_bytes = old_.resident_bytes;
    // Old buffers keep their indices; new ones, for single modules, are added behind them.
    program_.buffers = old_.buffers;
  }

  // Only the passes are rewritten.
  RankProgram Rewrite() {
    for (const Instruction& instruction : old_.instructions) {
      if (instruction.op == Op::kForward) {
        Forward(instruction);
      } else if (instruction.op == Op::kBackward) {
        Backward(instruction);
      } else {
        program_.instructions.push_back(instruction);
      }
    }
    return std::move(program_);
  }

 private:
  const ModuleKeeping& KeepingOf(std::uint32_t micro_batch, std::uint32_t module) const {
    return keeping_[micro_batch - first_micro_batch_][module - stage_.first_module];
  }
  bool Drops(std::uint32_t micro_batch, std::uint32_t module) const {
    return KeepingOf(micro_batch, module).graph == Keeping::kRecompute;
  }
  const Buffer& At(std::uint32_t buffer) const { return program_.buffers[buffer]; }

  std::uint32_t BufferOf(BufferKind kind, std::uint32_t micro_batch, std::uint32_t module) {
    // A buffer of a module is made up at its first use.
    const auto [found, added] = buffers_.try_emplace(
        {kind, micro_batch, module}, static_cast<std::uint32_t>(program_.buffers.size()));
    if (added) {
      const StageModule& cost = stage_.Module(module);
      program_.buffers.push_back(
          {.kind = kind,
           .micro_batch = micro_batch,
           .bytes = kind == BufferKind::kSaved ? cost.graph_bytes : cost.output_bytes,
           .module = module,
           .fixed_bytes = kind == BufferKind::kSaved ? cost.fixed_bytes : 0});
    }
    return found->second;
  }

  // The output that is sent from here, of those that the pass has to do with.
  const std::uint32_t* SentOutput(const std::vector<std::uint32_t>& listed,
                                  std::uint32_t module) const {
    const auto found = std::ranges::find_if(listed, [&](std::uint32_t index) {
      return At(index).kind == BufferKind::kOutput &&
             plan_.stages.edges[At(index).edge].from_module == module;
    });
    return found == listed.end() ? nullptr : &*found;
  }

  // Users of a module's output among the stage's modules, ascending.
  std::vector<std::uint32_t> UsersOf(std::uint32_t module) const {
    std::vector<std::uint32_t> users;
    for (std::uint32_t user = module + 1; user < stage_.EndModule(); ++user) {
      const std::vector<std::uint32_t>& sources = stage_.Module(user).sources;
      if (std::ranges::find(sources, module) != sources.end()) users.push_back(user);
    }
    return users;
  }

  std::uint32_t FirstUser(std::uint32_t module) const {
    const std::vector<std::uint32_t> users = UsersOf(module);
    return users.empty() ? kAllModules : users.front();
  }

  // Whether a buffer of the whole pass is an input of this module.
  bool IsInput(std::uint32_t index, std::uint32_t module) const {
    switch (At(index).kind) {
      case BufferKind::kInput: return module == 0;
      case BufferKind::kTarget: return module + 1 == stage_.EndModule();
      case BufferKind::kReceived: {
        const auto& users = plan_.stages.edges[At(index).edge].to_modules;
        return std::ranges::find(users, module) != users.end();
      }
      default: return false;
    }
  }

  // Inputs of a module: what was fed and received, and outputs of other modules. `listed` is what
  // the pass needs and makes.
  std::vector<std::uint32_t> InputsOf(const std::vector<std::uint32_t>& listed,
                                      std::uint32_t micro_batch, std::uint32_t module) {
    std::vector<std::uint32_t> inputs;
    for (const std::uint32_t index : listed) {
      if (IsInput(index, module)) inputs.push_back(index);
    }
    for (const std::uint32_t source : stage_.Module(module).sources) {
      if (!stage_.Has(source)) continue;
      const std::uint32_t* sent = SentOutput(listed, source);
      inputs.push_back(sent != nullptr ? *sent
                                       : BufferOf(BufferKind::kValue, micro_batch, source));
    }
    return inputs;
  }

  // Adds an instruction that moves a buffer, and remembers where buffers are.
  void Move(Op op, std::uint32_t buffer) {
    // One transfer out at a time: the link is one, and its memory is needed as early as possible.
    if (op == Op::kSwapOut) EndSwap();
    program_.instructions.push_back(
        {.op = op, .micro_batch = At(buffer).micro_batch, .needs = {buffer}});
    if (op == Op::kSwapOut) {
      away_[buffer] = program_.instructions.size();
      leaving_ = buffer;
    }
  }

  // Waits for what is on its way out.
  void EndSwap() {
    if (!leaving_) return;
    const std::uint32_t buffer = *std::exchange(leaving_, std::nullopt);
    Move(Op::kSwapEnd, buffer);
    away_[buffer] = program_.instructions.size();
  }

  // Replaces a forward pass over the stage by one pass per module. After each module, what it saved
  // leaves or is dropped, and outputs leave after their last user.
  void Forward(const Instruction& pass) {
    const std::uint32_t micro_batch = pass.micro_batch;
    std::vector<std::uint32_t> listed = pass.needs;
    listed.insert(listed.end(), pass.makes.begin(), pass.makes.end());
    for (std::uint32_t module = stage_.first_module; module < stage_.EndModule(); ++module) {
      // One module of the pass, with its own needs and outputs.
      Instruction part{.op = Op::kForward, .micro_batch = micro_batch, .module = module};
      part.needs = InputsOf(listed, micro_batch, module);
      const std::uint32_t graph = BufferOf(BufferKind::kSaved, micro_batch, module);
      const std::uint32_t* sent = SentOutput(listed, module);
      part.makes = {graph, sent != nullptr ? *sent
                                           : BufferOf(BufferKind::kValue, micro_batch, module)};
      // All graphs are there in the last F: what left before the one before it is gone by then.
      const bool last = module + 1 == stage_.EndModule();
      if (last && leaving_ && BesideLastPasses(1) > away_[*leaving_]) EndSwap();
      program_.instructions.push_back(std::move(part));
      const Keeping keeping = KeepingOf(micro_batch, module).graph;
      // Right after the module: what is not kept should take memory as briefly as possible.
      if (keeping == Keeping::kRecompute) Move(Op::kDrop, graph);
      if (keeping == Keeping::kSwap) Move(Op::kSwapOut, graph);
      // An output goes when its last user in the stage has been computed, and stays if it is sent:
      // the message reads it.
      for (const std::uint32_t source : stage_.Module(module).sources) {
        if (!stage_.Has(source) || UsersOf(source).back() != module) continue;
        if (KeepingOf(micro_batch, source).output == Keeping::kSwap &&
            SentOutput(listed, source) == nullptr) {
          Move(Op::kSwapOut, BufferOf(BufferKind::kValue, micro_batch, source));
        }
      }
    }
  }

  // What a module's backward pass needs; to compute it again takes less of it.
  std::vector<std::uint32_t> BackwardNeeds(const Instruction& pass, std::uint32_t module) {
    // Inputs, the graph, the output, and gradients that have arrived for it.
    std::vector<std::uint32_t> needs = InputsOf(pass.needs, pass.micro_batch, module);
    needs.push_back(BufferOf(BufferKind::kSaved, pass.micro_batch, module));
    const std::uint32_t* sent = SentOutput(pass.needs, module);
    needs.push_back(sent != nullptr ? *sent
                                    : BufferOf(BufferKind::kValue, pass.micro_batch, module));
    for (const std::uint32_t index : pass.needs) {
      if (At(index).kind != BufferKind::kArrivedGradient) continue;
      if (module + 1 == stage_.EndModule() ||
          plan_.stages.edges[At(index).edge].from_module == module) {
        needs.push_back(index);
      }
    }
    return needs;
  }

  // Brings back what is away of `needs`, as far ahead as is wanted, or later where it has not left
  // before.
  void Fetch(const std::vector<std::uint32_t>& needs) {
    for (const std::uint32_t buffer : needs) {
      const auto found = away_.find(buffer);
      if (found == away_.end()) continue;
      const std::uint32_t ahead = KeepingOf(At(buffer).micro_batch, At(buffer).module).ahead;
      // Not before the instruction that sent it out.
      const std::size_t position = std::max(BesideLastPasses(ahead), found->second);
      away_.erase(found);
      if (leaving_ == buffer) leaving_.reset();
      program_.instructions.insert(
          program_.instructions.begin() + static_cast<std::ptrdiff_t>(position),
          {.op = Op::kSwapIn, .micro_batch = At(buffer).micro_batch, .needs = {buffer}});
      // The insertion has moved everything behind it by one.
      for (auto& [other, at] : away_) {
        if (at > position) ++at;
      }
    }
  }

  // Where the last but `count` - 1 computation before the end of the list begins, so that a
  // transfer that is asked for there goes on beside those.
  std::size_t BesideLastPasses(std::uint32_t count) const {
    std::size_t at = program_.instructions.size();
    while (count > 0 && at > 0) {
      const Op op = program_.instructions[--at].op;
      if (IsPass(op) || op == Op::kRecompute) --count;
    }
    return at;
  }

  // Replaces a backward pass by one pass per module, from the last to the first. Before each
  // module, what it needs is brought back or computed again; after it, buffers end that no earlier
  // module needs.
  void Backward(const Instruction& pass) {
    const std::uint32_t micro_batch = pass.micro_batch;
    for (std::uint32_t module = stage_.EndModule(); module-- > stage_.first_module;) {
      std::vector<std::uint32_t> needs = BackwardNeeds(pass, module);
      Fetch(needs);
      if (Drops(micro_batch, module)) Recompute(pass, module);
      Instruction part{.op = Op::kBackward, .micro_batch = micro_batch, .module = module};
      part.needs = std::move(needs);
      const std::uint32_t value = BufferOf(BufferKind::kValue, micro_batch, module);
      // The sent output and the recomputed value are two buffers of one tensor then; both end here.
      const bool twice = Drops(micro_batch, module) && SentOutput(pass.needs, module) != nullptr;
      if (twice) part.needs.push_back(value);
      for (const std::uint32_t index : part.needs) {
        if (EndsWith(index, module)) part.frees.push_back(index);
      }
      for (const std::uint32_t index : pass.makes) {
        if (plan_.stages.edges[At(index).edge].to_modules.back() == module) {
          part.makes.push_back(index);
        }
      }
      program_.instructions.push_back(std::move(part));
    }
  }

  // Computes a module's graph again from its inputs, directly before its backward pass, so that it
  // takes memory as briefly as possible.
  void Recompute(const Instruction& pass, std::uint32_t module) {
    // The graph buffer comes first in `needs`: it is the one that comes back to life.
    Instruction again{.op = Op::kRecompute, .micro_batch = pass.micro_batch};
    again.needs = {BufferOf(BufferKind::kSaved, pass.micro_batch, module)};
    const std::vector<std::uint32_t> inputs =
        InputsOf(pass.needs, pass.micro_batch, module);
    again.needs.insert(again.needs.end(), inputs.begin(), inputs.end());
    const std::uint32_t value = BufferOf(BufferKind::kValue, pass.micro_batch, module);
    // The last module's output has no user here that would have let go of it.
    const bool kept = UsersOf(module).empty() && SentOutput(pass.needs, module) == nullptr;
    if (!kept) again.makes = {value};
    program_.instructions.push_back(std::move(again));
  }

  // Whether the backward pass of `module` is the last to need the buffer.
  bool EndsWith(std::uint32_t index, std::uint32_t module) const {
    const Buffer& buffer = At(index);
    switch (buffer.kind) {
      case BufferKind::kReceived:
        return plan_.stages.edges[buffer.edge].to_modules.front() == module;
      case BufferKind::kOutput:
      case BufferKind::kArrivedGradient:
        return plan_.stages.edges[buffer.edge].from_module == module;
      case BufferKind::kValue:
        if (buffer.module == module) return true;
        return Drops(buffer.micro_batch, buffer.module) &&
               FirstUser(buffer.module) == module;
      default: return true;
    }
  }

  const StepPlan& plan_;
  const StageCost& stage_;
  std::uint32_t first_micro_batch_;
  const RankKeeping& keeping_;
  const RankProgram& old_;
  RankProgram program_;
  std::map<std::tuple<BufferKind, std::uint32_t, std::uint32_t>, std::uint32_t> buffers_;
  // Buffers on the host, and the place in the list behind the instruction that sent them there.
  std::map<std::uint32_t, std::size_t> away_;
  std::optional<std::uint32_t> leaving_;  // on its way out
};

// A choice must have an entry for every micro-batch and module of every rank, and the plan must not
// have been rewritten before.
Status CheckChoices(const StepPlan& plan, const StepKeeping& choices) {
  if (!plan.trains) {
    return Error(ErrorCode::kInvalidArgument, "an evaluation saves nothing that could be moved");
  }
  if (choices.size() != plan.programs.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("what to keep is told for {} ranks of {}", choices.size(),
                             plan.programs.size()));
  }
  for (std::uint32_t rank = 0; rank < choices.size(); ++rank) {
    const StageCost& stage = plan.stages.stages.at(plan.layout.StageOf(rank));
    const bool shaped = choices[rank].size() == plan.MicroBatchesPerReplica() &&
                        std::ranges::all_of(choices[rank], [&](const auto& modules) {
                          return modules.size() == stage.modules.size();
                        });
    if (!shaped) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("rank {}: what to keep is not told for {} micro-batches of {} "
                               "modules",
                               rank, plan.MicroBatchesPerReplica(), stage.modules.size()));
    }
    for (const std::vector<ModuleKeeping>& modules : choices[rank]) {
      if (std::ranges::find(modules, Keeping::kRecompute, &ModuleKeeping::output) !=
          modules.end()) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("rank {}: an output is kept or swapped, not recomputed", rank));
      }
    }
    const auto& list = plan.programs[rank].instructions;
    if (std::ranges::any_of(list, [](const Instruction& instruction) {
          return instruction.module != kAllModules || instruction.op == Op::kDrop ||
                 instruction.op == Op::kSwapOut;  // what ends a swap or comes back has left before
        })) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("rank {}: the plan moves what is saved already", rank));
    }
  }
  return {};
}

}  // namespace

std::string_view KeepingName(Keeping keeping) {
  switch (keeping) {
    case Keeping::kKeep: return "keep";
    case Keeping::kSwap: return "swap";
    case Keeping::kRecompute: return "recompute";
  }
  return "?";
}

StepKeeping KeepAll(const StepPlan& plan, const ModuleKeeping& keeping) {
  StepKeeping choices;
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    const StageCost& stage = plan.stages.stages.at(plan.layout.StageOf(rank));
    choices.emplace_back(plan.MicroBatchesPerReplica(),
                         std::vector<ModuleKeeping>(stage.modules.size(), keeping));
  }
  return choices;
}

Result<StepPlan> MoveSaved(const StepPlan& plan, const StepKeeping& choices) {
  FOREBAY_TRY(CheckChoices(plan, choices));
  StepPlan moved = plan;
  for (std::uint32_t rank = 0; rank < choices.size(); ++rank) {
    moved.programs[rank] = MovedProgram(plan, rank, choices[rank]);
  }
  return moved;
}

RankProgram MovedProgram(const StepPlan& plan, std::uint32_t rank, const RankKeeping& keeping) {
  const bool moves = std::ranges::any_of(keeping, [](const auto& modules) {
    return std::ranges::any_of(modules, &ModuleKeeping::moves);
  });
  return moves ? RankRewriter(plan, rank, keeping).Rewrite() : plan.programs[rank];
}

}  // namespace forebay::train
