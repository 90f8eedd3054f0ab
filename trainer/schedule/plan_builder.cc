// Writes one list of instructions per rank. A stage's passes come in the order of the schedule.
// Around each pass are the receives that it needs and the sends that it makes possible, so a
// message is sent as early and received as late as the schedule allows. Then come all reductions,
// begun together and ended together, the exchange of norms, and the update.
#include "trainer/schedule/plan_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace forebay::train {
namespace {

// Writes the program of one rank.
class RankWriter {
 public:
  RankWriter(const PlanRequest& request, std::uint32_t rank)
      : request_(request),
        replica_(request.layout.ReplicaOf(rank)),
        stage_(request.layout.StageOf(rank)),
        first_(replica_ * share()) {
    for (std::uint32_t edge = 0; edge < request.stages.edges.size(); ++edge) {
      if (request.stages.edges[edge].to_stage == stage_) arriving_.push_back(edge);
      if (request.stages.edges[edge].from_stage == stage_) leaving_.push_back(edge);
    }
  }

  // The passes in the order of the schedule, with their messages and feeds.
  void WriteSteps() {
    // An evaluation has no backward pass; the order of the micro-batches is free.
    if (!request_.trains) {
      for (std::uint32_t index = 0; index < share(); ++index) Forward(first_ + index);
      return;
    }
    for (const StagePass& pass :
         request_.schedule->order({.stage = stage_,
                                   .stages = request_.layout.stages,
                                   .micro_batches = share()})) {
      if (pass.backward) {
        Backward(first_ + pass.index);
      } else {
        Forward(first_ + pass.index);
      }
    }
  }

  // Begins all collectives, of which the first is the plan's number `from`, then ends them.
  void WriteCollectives(std::uint32_t from, std::span<const Collective> collectives) {
    std::vector<std::vector<std::uint32_t>> reduced(collectives.size());
    for (std::uint32_t at = 0; at < collectives.size(); ++at) {
      if (const std::uint64_t bytes = ReducedBytes(collectives[at]); bytes > 0) {
        reduced[at].push_back(static_cast<std::uint32_t>(program_.buffers.size()));
        program_.buffers.push_back({.kind = BufferKind::kReduced, .bytes = bytes});
      }
      Add({.op = Op::kCollectiveBegin, .collective = from + at}).makes = reduced[at];
    }
    // The order of the ends is that of the begins; any other would do, but this one is the same on
    // all members.
    for (std::uint32_t at = 0; at < collectives.size(); ++at) {
      Add({.op = Op::kCollectiveEnd, .collective = from + at}).frees = reduced[at];
    }
  }

  void WriteUpdate() { Add({.op = Op::kUpdate}); }
  RankProgram Take() { return std::move(program_); }

 private:
  std::uint32_t share() const { return request_.micro_batches / request_.layout.replicas; }
  bool leads() const { return stage_ == 0; }
  bool ends() const { return stage_ + 1 == request_.layout.stages; }
  const StageEdge& EdgeOf(std::uint32_t edge) const { return request_.stages.edges[edge]; }

  // Returns the instruction that was added, for its buffers.
  Instruction& Add(Instruction instruction) {
    program_.instructions.push_back(std::move(instruction));
    return program_.instructions.back();
  }

  // The buffer of that name; made up where there is none yet.
  std::uint32_t BufferOf(BufferKind kind, std::uint32_t micro_batch, std::uint32_t edge,
                         std::uint64_t bytes) {
    const auto [found, added] = buffers_.try_emplace(
        {kind, micro_batch, edge}, static_cast<std::uint32_t>(program_.buffers.size()));
    if (added) {
      program_.buffers.push_back(
          {.kind = kind, .micro_batch = micro_batch, .edge = edge, .bytes = bytes});
    }
    return found->second;
  }
  std::uint32_t EdgeBuffer(BufferKind kind, std::uint32_t micro_batch, std::uint32_t edge) {
    return BufferOf(kind, micro_batch, edge, EdgeOf(edge).bytes);
  }
  // A module's output is one piece of memory, whatever the number of stages it is sent to.
  std::uint32_t OutputBuffer(std::uint32_t micro_batch, std::uint32_t edge) {
    const auto same = std::ranges::find_if(leaving_, [&](std::uint32_t other) {
      return EdgeOf(other).from_module == EdgeOf(edge).from_module;
    });
    // The first edge of the output names the buffer.
    return EdgeBuffer(BufferKind::kOutput, micro_batch, *same);
  }

  // Adds a send or a receive along an edge. The other end follows from the channel: activations go
  // forward, gradients back.
  void Message(Op op, Channel channel, std::uint32_t micro_batch, std::uint32_t edge,
               std::uint32_t buffer, bool last_use) {
    const bool forward = channel == Channel::kActivation;
    const bool outward = op == Op::kSend;
    const std::uint32_t other =
        forward == outward ? EdgeOf(edge).to_stage : EdgeOf(edge).from_stage;
    Instruction& added = Add({.op = op,
                              .micro_batch = micro_batch,
                              .channel = channel,
                              .peer = request_.layout.RankOf(replica_, other),
                              .edge = edge});
    if (outward) {
      added.needs.push_back(buffer);
      if (last_use) added.frees.push_back(buffer);
    } else {
      added.makes.push_back(buffer);
    }
  }

  // What is fed stays until the backward pass, which needs inputs and targets again.
  void Feed(std::uint32_t micro_batch, BufferKind kind, std::uint64_t bytes) {
    const std::uint32_t buffer = BufferOf(kind, micro_batch, 0, bytes);
    Add({.op = Op::kFeed, .micro_batch = micro_batch}).makes.push_back(buffer);
    fed_[micro_batch].push_back(buffer);
  }

  // Feeds and receives, then the pass, then the sends of its outputs.
  void Forward(std::uint32_t micro_batch) {
    if (leads()) Feed(micro_batch, BufferKind::kInput, request_.stages.input_bytes);
    if (ends()) Feed(micro_batch, BufferKind::kTarget, request_.stages.target_bytes);
    Instruction compute{.op = Op::kForward, .micro_batch = micro_batch};
    compute.needs = fed_[micro_batch];
    // A receive waits, so it stands immediately before the pass that needs it.
    for (const std::uint32_t edge : arriving_) {
      const std::uint32_t buffer = EdgeBuffer(BufferKind::kReceived, micro_batch, edge);
      Message(Op::kReceive, Channel::kActivation, micro_batch, edge, buffer, false);
      compute.needs.push_back(buffer);
    }
    for (const std::uint32_t edge : leaving_) {
      const std::uint32_t buffer = OutputBuffer(micro_batch, edge);
      if (std::ranges::find(compute.makes, buffer) == compute.makes.end()) {
        compute.makes.push_back(buffer);
      }
    }
    if (request_.trains) {
      compute.makes.push_back(BufferOf(BufferKind::kSaved, micro_batch, 0,
                                       request_.stages.stages[stage_].saved_bytes));
    } else {
      // Without a backward pass nothing is needed any more.
      compute.frees = compute.needs;
    }
    Add(std::move(compute));
    // Sends never wait, so they come as soon as the output exists.
    for (std::size_t at = 0; at < leaving_.size(); ++at) {
      const std::uint32_t buffer = OutputBuffer(micro_batch, leaving_[at]);
      const bool again = std::any_of(
          leaving_.begin() + static_cast<std::ptrdiff_t>(at) + 1, leaving_.end(),
          [&](std::uint32_t later) { return OutputBuffer(micro_batch, later) == buffer; });
      // In training the output stays until the backward pass; otherwise the last send frees it.
      Message(Op::kSend, Channel::kActivation, micro_batch, leaving_[at], buffer,
              !request_.trains && !again);
    }
  }

  // Receives the gradients of all outputs, then the pass, then the sends of the gradients of what
  // had arrived.
  void Backward(std::uint32_t micro_batch) {
    Instruction compute{.op = Op::kBackward, .micro_batch = micro_batch};
    compute.needs = fed_[micro_batch];
    compute.needs.push_back(BufferOf(BufferKind::kSaved, micro_batch, 0, 0));
    for (const std::uint32_t edge : arriving_) {
      compute.needs.push_back(EdgeBuffer(BufferKind::kReceived, micro_batch, edge));
    }
    for (const std::uint32_t edge : leaving_) {
      // One gradient for each edge along which the output was sent.
      const std::uint32_t arrived = EdgeBuffer(BufferKind::kArrivedGradient, micro_batch, edge);
      Message(Op::kReceive, Channel::kGradient, micro_batch, edge, arrived, false);
      compute.needs.push_back(arrived);
      const std::uint32_t output = OutputBuffer(micro_batch, edge);
      if (std::ranges::find(compute.needs, output) == compute.needs.end()) {
        compute.needs.push_back(output);
      }
    }
    // The backward pass is the last user of everything that was kept for it.
    compute.frees = compute.needs;
    for (const std::uint32_t edge : arriving_) {
      compute.makes.push_back(EdgeBuffer(BufferKind::kLeavingGradient, micro_batch, edge));
    }
    Add(std::move(compute));
    for (const std::uint32_t edge : arriving_) {
      Message(Op::kSend, Channel::kGradient, micro_batch, edge,
              EdgeBuffer(BufferKind::kLeavingGradient, micro_batch, edge), true);
    }
  }

  const PlanRequest& request_;
  std::uint32_t replica_;
  std::uint32_t stage_;
  std::uint32_t first_;  // of this replica's micro-batches
  std::vector<std::uint32_t> arriving_;
  std::vector<std::uint32_t> leaving_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> fed_;  // by micro-batch
  std::map<std::tuple<BufferKind, std::uint32_t, std::uint32_t>, std::uint32_t> buffers_;
  RankProgram program_;
};

// The numbers come from a configuration: without these checks, later code would divide by zero or
// leave samples out.
Status CheckRequest(const PlanRequest& request) {
  const Layout& layout = request.layout;
  if (layout.replicas == 0 || layout.stages == 0 || request.micro_batches == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "replicas, stages and micro-batches are at least 1");
  }
  if (layout.stages != request.stages.stages.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the layout has {} stages, the model is cut into {}", layout.stages,
                             request.stages.stages.size()));
  }
  if (request.micro_batches % layout.replicas != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} replicas do not divide the {} micro-batches of a step",
                             layout.replicas, request.micro_batches));
  }
  const std::uint32_t share = request.micro_batches / layout.replicas;
  // With one replica the tree over the micro-batches is local, and any number will do.
  if (layout.replicas > 1 && !std::has_single_bit(share)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} micro-batches over {} replicas: {} for each is not a power of "
                             "two, so the sum of gradients would depend on the layout",
                             request.micro_batches, layout.replicas, share));
  }
  if (request.bucket_bytes == 0) {
    return Error(ErrorCode::kInvalidArgument, "reduction buckets of 0 bytes");
  }
  return {};
}

// Collectives that lie next to each other in the plan's list.
struct CollectiveRange {
  std::uint32_t from = 0;
  std::uint32_t to = 0;

  std::span<const Collective> Of(const StepPlan& plan) const {
    return std::span(plan.collectives).subspan(from, to - from);
  }
};

// The reductions of one stage over its replicas: gradients in buckets, then batch statistics. None
// without replicas.
CollectiveRange AddReductions(const PlanRequest& request, std::uint32_t stage, StepPlan& plan) {
  CollectiveRange range;
  range.from = static_cast<std::uint32_t>(plan.collectives.size());
  if (request.layout.replicas > 1) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t replica = 0; replica < request.layout.replicas; ++replica) {
      members.push_back(request.layout.RankOf(replica, stage));
    }
    // Ranks of one stage in all replicas have the same parameters.
    const StageCost& cost = request.stages.stages[stage];
    // Buckets of equal size; the last one takes the rest.
    for (std::uint64_t at = 0; at < cost.parameter_bytes; at += request.bucket_bytes) {
      plan.collectives.push_back(
          {.kind = CollectiveKind::kGradients,
           .members = members,
           .bytes = std::min(request.bucket_bytes, cost.parameter_bytes - at)});
    }
    if (cost.statistics_bytes > 0) {
      plan.collectives.push_back({.kind = CollectiveKind::kStatistics,
                                  .members = members,
                                  .bytes = cost.statistics_bytes * request.micro_batches});
    }
  }
  range.to = static_cast<std::uint32_t>(plan.collectives.size());
  return range;
}

// After the reduction all replicas have the same gradients: each gathers over its own stages.
CollectiveRange AddNorms(const PlanRequest& request, std::uint32_t replica, StepPlan& plan) {
  CollectiveRange range;
  range.from = static_cast<std::uint32_t>(plan.collectives.size());
  // A single stage has the whole gradient, and needs nobody to know its norm.
  if (request.clips && request.layout.stages > 1) {
    Collective norms{.kind = CollectiveKind::kNorms, .bytes = 0};
    for (std::uint32_t stage = 0; stage < request.layout.stages; ++stage) {
      norms.members.push_back(request.layout.RankOf(replica, stage));
      norms.bytes += sizeof(double);
    }
    plan.collectives.push_back(std::move(norms));
  }
  range.to = static_cast<std::uint32_t>(plan.collectives.size());
  return range;
}

}  // namespace

std::uint32_t GradientBuffers(std::uint32_t micro_batches) {
  // A binary tree that is summed from left to right keeps one partial sum per level.
  return static_cast<std::uint32_t>(std::bit_width(micro_batches));
}

std::uint32_t ParameterCopies(std::uint32_t optimiser_states, std::uint32_t micro_batches) {
  return 1 + optimiser_states + GradientBuffers(micro_batches);
}

// First the collectives, whose numbers all ranks use, then the list of each rank.
Result<StepPlan> BuildPlan(const PlanRequest& request) {
  FOREBAY_TRY(CheckRequest(request));
  StepPlan plan;
  plan.schedule = request.trains ? std::string(request.schedule->name) : "forward";
  plan.layout = request.layout;
  plan.micro_batches = request.micro_batches;
  plan.trains = request.trains;
  plan.stages = request.stages;
  std::vector<CollectiveRange> reductions;
  std::vector<CollectiveRange> norms;
  if (request.trains) {
    for (std::uint32_t stage = 0; stage < request.layout.stages; ++stage) {
      reductions.push_back(AddReductions(request, stage, plan));
    }
    for (std::uint32_t replica = 0; replica < request.layout.replicas; ++replica) {
      norms.push_back(AddNorms(request, replica, plan));
    }
  }
  // Every rank gets the same plan with the lists of all ranks, so that it can check and simulate
  // the whole.
  for (std::uint32_t rank = 0; rank < request.layout.ranks(); ++rank) {
    const StageCost& cost = request.stages.stages[request.layout.StageOf(rank)];
    RankWriter writer(request, rank);
    writer.WriteSteps();
    if (request.trains) {
      const CollectiveRange& reduction = reductions[request.layout.StageOf(rank)];
      const CollectiveRange& norm = norms[request.layout.ReplicaOf(rank)];
      writer.WriteCollectives(reduction.from, reduction.Of(plan));
      writer.WriteCollectives(norm.from, norm.Of(plan));
      writer.WriteUpdate();
    }
    RankProgram program = writer.Take();
    // An evaluation holds the weights alone.
    const std::uint64_t copies =
        request.trains
            ? ParameterCopies(request.optimiser_states, plan.MicroBatchesPerReplica())
            : 1U;
    program.resident_bytes = cost.parameter_bytes * copies + cost.statistics_bytes;
    plan.programs.push_back(std::move(program));
  }
  return plan;
}

}  // namespace forebay::train
