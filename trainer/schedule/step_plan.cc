// The plan as text for people and for error messages, and two figures of single instructions that
// the builder, the checker and the simulator must compute alike.
#include "trainer/schedule/step_plan.h"

#include <fmt/format.h>

#include <iterator>

#include "trainer/comm/collectives.h"

namespace forebay::train {
namespace {

// Names and texts below are for people: they stand in errors, logs and traces.
std::string_view CollectiveName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kGradients: return "gradients";
    case CollectiveKind::kStatistics: return "statistics";
    case CollectiveKind::kNorms: return "norms";
  }
  return "?";
}

// "SEND activation 0->1 of module 2 micro-batch 3 to rank 1".
std::string DescribeMessage(const StepPlan& plan, const Instruction& instruction) {
  // The edge may be wrong: this text is also for plans that the checker refuses.
  const bool sends = instruction.op == Op::kSend;
  std::string edge = "an unknown edge";
  if (instruction.edge < plan.stages.edges.size()) {
    const StageEdge& crossed = plan.stages.edges[instruction.edge];
    edge = fmt::format("{}->{} of module {}", crossed.from_stage, crossed.to_stage,
                       crossed.from_module);
  }
  return fmt::format("{} {} {} micro-batch {} {} rank {}", OpName(instruction.op),
                     instruction.channel == Channel::kActivation ? "activation" : "gradient",
                     edge, instruction.micro_batch, sends ? "to" : "from", instruction.peer);
}

std::string ModuleName(std::uint32_t module) {
  return module == kAllModules ? std::string() : fmt::format(" module {}", module);
}

// "SWAPOUT saved module 4 micro-batch 0 (1024 bytes)". The buffer that is moved is the first of
// `needs`, which may be wrong here as well.
std::string DescribeMove(const StepPlan& plan, std::uint32_t rank,
                         const Instruction& instruction) {
  const std::vector<Buffer>& buffers = plan.programs.at(rank).buffers;
  // A plan that CheckIndices refuses is described as well, so nothing may be looked up unchecked.
  if (instruction.needs.empty() || instruction.needs.front() >= buffers.size()) {
    return fmt::format("{} of an unknown buffer", OpName(instruction.op));
  }
  const Buffer& buffer = buffers[instruction.needs.front()];
  return fmt::format("{} {}{} micro-batch {} ({} bytes)", OpName(instruction.op),
                     buffer.kind == BufferKind::kValue ? "output" : "saved",
                     ModuleName(buffer.module), buffer.micro_batch, buffer.bytes);
}

}  // namespace

// What a reduce-scatter receives. A collective over one replica of several counts the members that
// are left out, too.
std::uint64_t ReducedBytes(const Collective& collective) {
  // Statistics and norms are a few numbers, whose memory nobody plans.
  if (collective.kind != CollectiveKind::kGradients) return 0;
  return ArrivingElements(collective.bytes / sizeof(float), collective.ring()) * sizeof(float);
}

std::string_view OpName(Op op) {
  switch (op) {
    case Op::kFeed: return "FEED";
    case Op::kForward: return "F";
    case Op::kBackward: return "B";
    case Op::kSend: return "SEND";
    case Op::kReceive: return "RECV";
    case Op::kCollectiveBegin: return "BEGIN";
    case Op::kCollectiveEnd: return "END";
    case Op::kSwapOut: return "SWAPOUT";
    case Op::kSwapEnd: return "SWAPEND";
    case Op::kSwapIn: return "SWAPIN";
    case Op::kDrop: return "DROP";
    case Op::kRecompute: return "RECOMP";
    case Op::kUpdate: return "STEP";
  }
  return "?";
}

// To recompute a module takes what its forward pass takes.
std::uint64_t ScratchBytes(const StepPlan& plan, std::uint32_t rank,
                           const Instruction& instruction) {
  const StageCost& stage = plan.stages.stages[plan.layout.StageOf(rank)];
  switch (instruction.op) {
    case Op::kForward: return stage.ForwardScratch(instruction.module);
    case Op::kBackward: return stage.BackwardScratch(instruction.module);
    case Op::kRecompute: {
      const Buffer& again = plan.programs[rank].buffers[instruction.needs.front()];
      return stage.ForwardScratch(again.module);
    }
    // Messages and moves use memory that the plan has as buffers.
    default: return 0;
  }
}

std::string Describe(const StepPlan& plan, std::uint32_t rank, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kSend:
    case Op::kReceive: return DescribeMessage(plan, instruction);
    case Op::kCollectiveBegin:
    case Op::kCollectiveEnd: {
      // The index itself may be the error that is described, so it is checked before use.
      if (instruction.collective >= plan.collectives.size()) {
        return fmt::format("{} of an unknown collective {}", OpName(instruction.op),
                           instruction.collective);
      }
      const Collective& collective = plan.collectives[instruction.collective];
      return fmt::format("{} {} over {} ranks ({} bytes)", OpName(instruction.op),
                         CollectiveName(collective.kind), collective.members.size(),
                         collective.bytes);
    }
    case Op::kUpdate: return std::string(OpName(instruction.op));
    case Op::kSwapOut:
    case Op::kSwapEnd:
    case Op::kSwapIn:
    case Op::kDrop:
    case Op::kRecompute: return DescribeMove(plan, rank, instruction);
    default:
      return fmt::format("{}{} micro-batch {}", OpName(instruction.op),
                         ModuleName(instruction.module), instruction.micro_batch);
  }
}

std::string InstructionName(const StepPlan& plan, std::uint32_t rank, std::size_t at) {
  return fmt::format("rank {} instruction {} ({})", rank, at,
                     Describe(plan, rank, plan.programs[rank].instructions[at]));
}

// For tests and for people: a whole plan, rank by rank.
std::string ToText(const StepPlan& plan) {
  std::string text = fmt::format("{}: {} replicas x {} stages, {} micro-batches\n", plan.schedule,
                                 plan.layout.replicas, plan.layout.stages, plan.micro_batches);
  for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
    fmt::format_to(std::back_inserter(text), "rank {}\n", rank);
    const std::vector<Instruction>& instructions = plan.programs[rank].instructions;
    for (std::size_t at = 0; at < instructions.size(); ++at) {
      fmt::format_to(std::back_inserter(text), "  {:4} {}\n", at,
                     Describe(plan, static_cast<std::uint32_t>(rank), instructions[at]));
    }
  }
  return text;
}

}  // namespace forebay::train
