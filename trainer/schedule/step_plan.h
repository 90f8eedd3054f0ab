// StepPlan: one training step as data. Every rank has a list of instructions that it executes in
// order. What is sent, received and reduced, and in which order, is fixed before the step begins.
// The checker proves the lists sound, the simulator times them, and the runner executes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/schedule/model_graph.h"

namespace forebay::train {

// Data parallel x pipeline parallel. The ranks of one replica are neighbours.
struct Layout {
  std::uint32_t replicas = 1;
  std::uint32_t stages = 1;

  std::uint32_t ranks() const { return replicas * stages; }
  std::uint32_t RankOf(std::uint32_t replica, std::uint32_t stage) const {
    return replica * stages + stage;
  }
  std::uint32_t ReplicaOf(std::uint32_t rank) const { return rank / stages; }
  std::uint32_t StageOf(std::uint32_t rank) const { return rank % stages; }
  friend bool operator==(const Layout&, const Layout&) = default;
};

enum class Op : std::uint8_t {
  kFeed,             // takes the input or target of a micro-batch from the feed
  kForward,
  kBackward,
  kSend,             // begins; never waits. The buffer it frees is free once it has gone out
  kReceive,          // waits until the message is there
  kCollectiveBegin,  // begins; never waits
  kCollectiveEnd,    // waits until every member has begun
  kSwapOut,          // begins to move a saved buffer to the host; never waits
  kSwapEnd,          // waits until it has gone: only then its memory is free
  kSwapIn,           // begins to bring it back; never waits
  kDrop,             // forgets a saved buffer that a recomputation makes again
  kRecompute,
  kUpdate,           // the optimiser's step, once
};

// Classes of messages. Each has an order of its own between two ranks.
enum class Channel : std::uint8_t { kActivation = 0, kGradient = 1 };
inline constexpr std::size_t kChannelCount = 2;

enum class BufferKind : std::uint8_t {
  kInput,            // from the feed, at the first stage
  kTarget,           // from the feed, at the last stage
  kSaved,            // what a stage keeps from forward to backward
  kReceived,         // an activation that arrived; until backward
  kOutput,           // an activation that is sent; until backward
  kArrivedGradient,  // of an output
  kLeavingGradient,  // of a received activation
  kValue,            // a module's output, apart from what else is saved, until backward
  kReduced,          // other replicas' parts of a gradient, while it is summed
};

// The module of buffers and instructions that belong to all modules of a stage.
inline constexpr std::uint32_t kAllModules = 0xffffffff;

// A piece of memory that exists for a part of the step.
struct Buffer {
  BufferKind kind = BufferKind::kSaved;
  std::uint32_t micro_batch = 0;
  std::uint32_t edge = 0;  // of StepPlan::stages.edges, for the kinds that cross stages
  std::uint64_t bytes = 0;
  std::uint32_t module = kAllModules;  // of the model; kSaved and kValue only
  std::uint64_t fixed_bytes = 0;       // of `bytes`: stay when the rest is swapped out
};

enum class CollectiveKind : std::uint8_t {
  kGradients,   // sums a stage's gradients over the replicas
  kStatistics,  // gathers the statistics of all micro-batches over the replicas
  kNorms,       // gathers squared gradient norms over all ranks, for clipping
};

struct Collective {
  CollectiveKind kind = CollectiveKind::kGradients;
  std::vector<std::uint32_t> members = {};  // ranks, ascending
  std::uint64_t bytes = 0;
  std::uint32_t absent = 0;  // members that a plan of one replica leaves out

  std::uint32_t ring() const { return static_cast<std::uint32_t>(members.size()) + absent; }
};

// Bytes of the kReduced buffer that exists from a collective's begin to its end: (n - 1) / n of a
// bucket of gradients for n members. 0 for other collectives, which receive in place.
std::uint64_t ReducedBytes(const Collective& collective);

struct Instruction {
  Op op = Op::kForward;
  std::uint32_t micro_batch = 0;  // index within the step, over all replicas
  Channel channel = Channel::kActivation;  // messages only
  std::uint32_t peer = 0;                  // messages only: the other rank
  std::uint32_t edge = 0;                  // messages only
  std::uint32_t collective = 0;            // collectives only: of StepPlan::collectives
  // F and B only: the module of the model that is computed. A rank that moves saved values
  // computes module by module, ascending and descending.
  std::uint32_t module = kAllModules;
  // Buffers of this rank: must be there; come to life; end.
  std::vector<std::uint32_t> needs = {};
  std::vector<std::uint32_t> makes = {};
  std::vector<std::uint32_t> frees = {};
};

struct RankProgram {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::uint64_t resident_bytes = 0;  // parameters, gradients, optimiser's state
};

struct StepPlan {
  std::string schedule;  // "gpipe", "1f1b"
  Layout layout;
  std::uint32_t micro_batches = 1;  // of a step, over all replicas
  bool trains = true;               // false: an evaluation, forward only
  StageGraph stages;
  std::vector<Collective> collectives;
  std::vector<RankProgram> programs;  // by rank

  std::uint32_t MicroBatchesPerReplica() const { return micro_batches / layout.replicas; }
};

std::string_view OpName(Op op);

// Bytes that an instruction of a rank takes beside its buffers while it runs. The buffers that it
// makes count from its begin, those that it frees until its end.
std::uint64_t ScratchBytes(const StepPlan& plan, std::uint32_t rank,
                           const Instruction& instruction);

// "SEND gradient 2->1 micro-batch 3 to rank 1". `rank` executes the instruction.
std::string Describe(const StepPlan& plan, std::uint32_t rank, const Instruction& instruction);

// "rank 2 instruction 17 (RECV ...)".
std::string InstructionName(const StepPlan& plan, std::uint32_t rank, std::size_t at);

// The plan as text for people, one line for each instruction.
std::string ToText(const StepPlan& plan);

}  // namespace forebay::train
