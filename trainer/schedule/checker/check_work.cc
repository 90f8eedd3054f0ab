// Point 2 of CheckPlan. For each rank it counts the passes over its micro-batches, and compares
// what each pass waits for with what the model's graph says that it needs. So a plan that leaves
// out a receive, or computes something twice, is refused even if it would not hang.
#include "trainer/schedule/checker/plan_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace forebay::train {
namespace {

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
  // The module's own output as well: it is the root from which its graph is differentiated.
  if (!saved || !NeedsOutput(view, instruction, wanted.module, wanted.micro_batch)) {
    return view.Fault(at, "it does not wait for all of its gradients and saved values");
  }
  return {};
}

// Compares what a pass waits for with what its module or stage needs: everything that arrives along
// the edges, the micro-batch's input and target, the gradients of its outputs, and what its forward
// pass saved.
Status CheckInputs(const RankView& view, std::size_t at, const Instruction& instruction,
                   const Computation& wanted) {
  const StageCost& cost = view.plan.stages.stages[view.stage()];
  const std::vector<StageEdge>& edges = view.plan.stages.edges;
  const bool whole = wanted.module == kAllModules;
  // What has to arrive follows from the edges of the cut, not from the plan.
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
  // Inputs are fed to the first module of the model, targets to the last.
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
    // Also for statistics: they come from forward passes, which lie before the backward passes.
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

  // Counts a pass, and checks that it is the one that is due.
  Status Count(std::size_t at, const Instruction& instruction) {
    const bool backward = instruction.op == Op::kBackward;
    Progress& progress = Of(backward, instruction.micro_batch);
    const auto modules = static_cast<std::uint32_t>(stage_.modules.size());
    if (backward && open_ && *open_ != instruction.micro_batch) {
      return view_.Fault(at, "another micro-batch is half way backward");
    }
    // A pass over the whole stage must not come in the middle of one module by module.
    if (instruction.module == kAllModules) {
      if (progress.modules != 0) return view_.Fault(at, "some of its modules are computed");
      ++progress.times;
      return {};
    }
    // Forward ascends, backward descends, without gaps.
    const std::uint32_t next = backward ? stage_.EndModule() - 1 - progress.modules
                                        : stage_.first_module + progress.modules;
    if (!stage_.Has(instruction.module) || instruction.module != next) {
      return view_.Fault(at, "its modules are not computed in order");
    }
    const bool ends = ++progress.modules == modules;
    // StageCompute sums gradients of one micro-batch at a time, so that backward passes do not mix.
    if (backward) open_ = instruction.micro_batch;
    if (!ends) return {};
    open_.reset();
    progress = {.times = progress.times + 1, .modules = 0};
    return {};
  }

  // At the end each micro-batch must have gone forward once and, in training, backward once.
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

// Walks through the list of one rank.
Status CheckRankWork(const RankView& view) {
  PassCount passes(view);
  std::size_t updates = 0;
  const std::vector<Instruction>& list = view.program().instructions;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const Op op = list[at].op;
    // Nothing may read or change weights after the update of the step.
    if (updates > 0) return view.Fault(at, "it comes after the update");
    // An evaluation's plan has none, which is compared at the end.
    if (op == Op::kUpdate) ++updates;
    if (op == Op::kForward || op == Op::kBackward) {
      // Before the inputs: what a pass needs depends on which one is due.
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

}  // namespace

Status CheckWork(const StepPlan& plan) {
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    FOREBAY_TRY(CheckRankWork({plan, rank}));
  }
  return {};
}

}  // namespace forebay::train
