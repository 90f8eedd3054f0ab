// A discrete-event simulation without an event queue: each rank has a clock of its own, and a rank
// goes on while what it waits for has been simulated. Because lists have no choices, the order in
// which ranks are visited does not change any time. Links carry one message after the other; a
// group's collectives follow each other; swaps of a rank share one link.
#include "trainer/schedule/plan_simulator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/schedule/checker/plan_checks.h"

namespace forebay::train {
namespace {

// The time during which a transfer occupies its link.
std::uint64_t TransferNs(const LinkCost& link, double bytes) {
  return link.latency_ns + static_cast<std::uint64_t>(std::llround(bytes / link.bytes_per_ns));
}

std::uint64_t Nanoseconds(double ns_per_byte, std::uint64_t bytes) {
  return static_cast<std::uint64_t>(std::llround(ns_per_byte * static_cast<double>(bytes)));
}

std::uint64_t CollectiveNs(const LinkCost& link, const Collective& collective) {
  const std::uint32_t members = collective.ring();
  // Nothing leaves the rank.
  if (members < 2) return 0;
  // The latency grows with the logarithm of the members, as rounds of a tree do.
  const LinkCost rounds{.latency_ns = link.latency_ns * std::bit_width(members - 1U),
                        .bytes_per_ns = link.bytes_per_ns};
  // Bytes that leave each member in a reduce-scatter and an all-gather.
  const double share = 2.0 * (members - 1) / members;
  return TransferNs(rounds, share * static_cast<double>(collective.bytes));
}

// Bytes that come or go on a rank. Their times are not ascending, because a buffer that is sent is
// freed later than the instruction that frees it.
struct MemoryChange {
  std::uint64_t at_ns = 0;
  std::int64_t bytes = 0;
};

// Sorts all changes by time and adds them up.
std::uint64_t PeakOf(std::vector<MemoryChange> changes, std::uint64_t resident) {
  // What is freed at an instant is free for what is made at it.
  std::ranges::sort(changes, {}, [](const MemoryChange& change) {
    return std::pair(change.at_ns, change.bytes);
  });
  auto live = static_cast<std::int64_t>(resident);
  std::int64_t peak = live;
  for (const MemoryChange& change : changes) {
    live += change.bytes;
    peak = std::max(peak, live);
  }
  return static_cast<std::uint64_t>(peak);
}

class Simulator {
 public:
  Simulator(const StepPlan& plan, const MessagePartners& partners, const SimulationCosts& costs,
            SimulationDetail detail)
      : plan_(plan),
        partners_(partners),
        costs_(costs),
        detail_(detail),
        ranks_(plan.programs.size()) {
    collectives_.resize(plan.collectives.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      // One entry for each instruction and buffer, so that nothing is looked up by name.
      ranks_[rank].arrivals.resize(plan.programs[rank].instructions.size());
      ranks_[rank].ready_ns.resize(plan.programs[rank].buffers.size());
      ranks_[rank].away.resize(plan.programs[rank].buffers.size());
      ranks_[rank].sent_ns.resize(plan.programs[rank].buffers.size());
    }
  }

  // Visits the ranks in turn.
  Simulation Run() {
    // Rounds over the ranks until none can go on. A checked plan then has ended.
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        // As far as this rank comes by itself.
        while (ranks_[rank].at < plan_.programs[rank].instructions.size() && CanRun(rank)) {
          Execute(rank);
          moved = true;
        }
      }
    }
    return Finish();
  }

 private:
  struct RankState {
    std::size_t at = 0;
    std::uint64_t now_ns = 0;
    std::uint64_t swap_free_ns = 0;
    std::vector<std::uint64_t> arrivals;  // of the messages that instructions sent
    std::vector<std::uint64_t> ready_ns;  // of buffers that are being swapped
    std::vector<bool> away;               // buffers whose swap has ended
    std::vector<std::uint64_t> sent_ns;   // when the last message with a buffer has arrived
    std::vector<MemoryChange> changes;
    std::vector<PlanSpan> spans;
    RankTimes times;
  };
  struct CollectiveState {
    std::size_t begun = 0;
    std::uint64_t last_begin_ns = 0;
    std::uint64_t end_ns = 0;
  };

  const Instruction& Current(std::uint32_t rank) const {
    return plan_.programs[rank].instructions[ranks_[rank].at];
  }
  // Whether everything that the instruction waits for has been simulated. When it happens does not
  // matter here: the time is computed from the other rank's clock.
  bool CanRun(std::uint32_t rank) const {
    const Instruction& current = Current(rank);
    if (current.op == Op::kReceive) {
      // The sender has passed its instruction; CheckPlan has proved that it will.
      return ranks_[current.peer].at > partners_[rank][ranks_[rank].at];
    }
    if (current.op == Op::kCollectiveEnd) {
      return collectives_[current.collective].begun ==
             plan_.collectives[current.collective].members.size();
    }
    return true;
  }

  void Execute(std::uint32_t rank);
  // The time of an instruction that begins at `begin_ns`; waits go to the rank's account.
  std::uint64_t EndOf(std::uint32_t rank, std::uint64_t begin_ns);
  std::uint64_t Call(std::uint32_t rank, std::uint64_t begin_ns, std::uint64_t bytes);
  std::uint64_t Compute(std::uint64_t begin_ns, std::uint64_t ns, std::uint64_t& account) {
    account += ns;
    return begin_ns + ns;
  }
  std::uint64_t WaitUntil(std::uint64_t begin_ns, std::uint64_t until_ns,
                          std::uint64_t& account) {
    if (until_ns <= begin_ns) return begin_ns;
    account += until_ns - begin_ns;
    return until_ns;
  }
  void Send(std::uint32_t rank, std::uint64_t at_ns);
  void BeginCollective(std::uint32_t rank);
  void Swap(std::uint32_t rank, bool out);
  void Account(std::uint32_t rank, std::uint64_t begin_ns);
  Simulation Finish();

  const StepPlan& plan_;
  const MessagePartners& partners_;
  const SimulationCosts& costs_;
  SimulationDetail detail_;
  std::vector<RankState> ranks_;
  std::vector<CollectiveState> collectives_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> link_free_ns_;
  std::map<std::vector<std::uint32_t>, std::uint64_t> group_free_ns_;
};

// Waits for buffers that are being swapped, takes the time of the instruction, and notes its span.
void Simulator::Execute(std::uint32_t rank) {
  RankState& state = ranks_[rank];
  const std::uint64_t arrived_ns = state.now_ns;
  std::uint64_t ready_ns = arrived_ns;
  for (const std::uint32_t buffer : Current(rank).needs) {
    ready_ns = std::max(ready_ns, state.ready_ns[buffer]);
  }
  // The beginning of a transfer waits for nothing, also if its buffer is on the way.
  const bool moves = Current(rank).op == Op::kSwapIn || Current(rank).op == Op::kSwapOut;
  const std::uint64_t begin_ns =
      moves ? arrived_ns : WaitUntil(arrived_ns, ready_ns, state.times.wait_swap_ns);
  state.now_ns = EndOf(rank, begin_ns);
  if (detail_ == SimulationDetail::kAll) {
    Account(rank, begin_ns);
    state.spans.push_back({.rank = rank,
                           .instruction = static_cast<std::uint32_t>(state.at),
                           .begin_ns = arrived_ns,
                           .end_ns = state.now_ns});
  }
  ++state.at;
}

// The rank's own time for a message: the transport's call, and copies between the message and the
// tensor.
std::uint64_t Simulator::Call(std::uint32_t rank, std::uint64_t begin_ns, std::uint64_t bytes) {
  return Compute(begin_ns, costs_.call_ns + Nanoseconds(costs_.copy_ns_per_byte, bytes),
                 ranks_[rank].times.other_ns);
}

// Every class of time is that of RankTimes, which the runner measures in the same way, so that
// both can be compared.
std::uint64_t Simulator::EndOf(std::uint32_t rank, std::uint64_t begin_ns) {
  RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  const std::uint32_t stage = plan_.layout.StageOf(rank);
  const StageCost& cost = plan_.stages.stages[stage];
  switch (current.op) {
    case Op::kForward:
      return Compute(begin_ns, cost.ForwardNs(current.module), state.times.compute_ns);
    case Op::kBackward:
      return Compute(begin_ns, cost.BackwardNs(current.module), state.times.compute_ns);
    case Op::kRecompute: {
      const Buffer& again = plan_.programs[rank].buffers[current.needs.front()];
      return Compute(begin_ns, cost.ForwardNs(again.module), state.times.recompute_ns);
    }
    case Op::kFeed: return Compute(begin_ns, costs_.feed_ns, state.times.other_ns);
    case Op::kUpdate:
      return Compute(begin_ns, Nanoseconds(costs_.update_ns_per_byte, cost.parameter_bytes),
                     state.times.compute_ns);
    case Op::kSend: {
      const std::uint64_t bytes = plan_.stages.edges[current.edge].bytes;
      const std::uint64_t end_ns = Call(rank, begin_ns, bytes);
      Send(rank, end_ns);
      return end_ns;
    }
    // The message may have arrived before; then the rank only pays for the call.
    case Op::kReceive: {
      const std::uint64_t arrival = ranks_[current.peer].arrivals[partners_[rank][state.at]];
      const std::uint64_t there = WaitUntil(begin_ns, arrival, state.times.wait_message_ns);
      return Call(rank, there, plan_.stages.edges[current.edge].bytes);
    }
    case Op::kCollectiveBegin:
      BeginCollective(rank);
      return begin_ns;
    case Op::kCollectiveEnd:
      return WaitUntil(begin_ns, collectives_[current.collective].end_ns,
                       state.times.wait_collective_ns);
    case Op::kSwapOut: Swap(rank, true); return begin_ns;
    case Op::kSwapIn: Swap(rank, false); return begin_ns;
    case Op::kSwapEnd: return begin_ns;  // has waited for its buffer
    case Op::kDrop: return begin_ns;
  }
  return begin_ns;
}

// The rank goes on at once; the message occupies the link.
void Simulator::Send(std::uint32_t rank, std::uint64_t at_ns) {
  const Instruction& current = Current(rank);
  std::uint64_t& free_ns = link_free_ns_[{rank, current.peer}];
  const auto bytes = static_cast<double>(plan_.stages.edges[current.edge].bytes);
  // A message waits for those before it on this link.
  free_ns = std::max(free_ns, at_ns) + TransferNs(costs_.message, bytes);
  ranks_[rank].arrivals[ranks_[rank].at] = free_ns;
  std::uint64_t& sent_ns = ranks_[rank].sent_ns[current.needs.front()];
  sent_ns = std::max(sent_ns, free_ns);
}

// A group's collectives follow each other; each starts when the last member has begun it.
void Simulator::BeginCollective(std::uint32_t rank) {
  const std::uint32_t id = Current(rank).collective;
  CollectiveState& state = collectives_[id];
  const Collective& collective = plan_.collectives[id];
  // The collective starts when its last member has begun it.
  state.last_begin_ns = std::max(state.last_begin_ns, ranks_[rank].now_ns);
  if (++state.begun < collective.members.size()) return;
  std::uint64_t& free_ns = group_free_ns_[collective.members];
  free_ns = std::max(free_ns, state.last_begin_ns) + CollectiveNs(costs_.collective, collective);
  state.end_ns = free_ns;
}

// The rank goes on at once; the transfer occupies the link to the host.
void Simulator::Swap(std::uint32_t rank, bool out) {
  RankState& state = ranks_[rank];
  const std::uint32_t buffer = Current(rank).needs.front();
  const Buffer& moved = plan_.programs[rank].buffers[buffer];
  const std::uint64_t bytes = moved.bytes - moved.fixed_bytes;
  // After the swaps before it, and after the buffer's own last transfer.
  const std::uint64_t begin_ns =
      std::max({state.now_ns, state.swap_free_ns, state.ready_ns[buffer]});
  const std::uint64_t end_ns = begin_ns + TransferNs(costs_.swap, static_cast<double>(bytes));
  state.swap_free_ns = end_ns;
  state.ready_ns[buffer] = end_ns;
  // Room is made at once; given back, it is by what ends the swap.
  if (!out && state.away[buffer]) {
    state.changes.push_back({state.now_ns, static_cast<std::int64_t>(bytes)});
    state.away[buffer] = false;
  }
}

// Notes the bytes that come and go with the instruction, with their times. Sorted at the end, they
// give the peak.
void Simulator::Account(std::uint32_t rank, std::uint64_t begin_ns) {
  RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  const std::vector<Buffer>& buffers = plan_.programs[rank].buffers;
  const auto bytes_of = [&](std::uint32_t buffer) {
    return static_cast<std::int64_t>(buffers[buffer].bytes);
  };
  for (const std::uint32_t buffer : current.makes) {
    state.changes.push_back({begin_ns, bytes_of(buffer)});
  }
  const auto scratch = static_cast<std::int64_t>(ScratchBytes(plan_, rank, current));
  state.changes.push_back({begin_ns, scratch});
  state.changes.push_back({state.now_ns, -scratch});
  // The sender's buffer is in use until the message has arrived.
  const std::uint64_t freed_ns =
      current.op == Op::kSend ? state.arrivals[state.at] : state.now_ns;
  for (const std::uint32_t buffer : current.frees) {
    state.changes.push_back({std::max(freed_ns, state.sent_ns[buffer]), -bytes_of(buffer)});
  }
  if (current.op == Op::kSwapEnd) {
    const Buffer& moved = buffers[current.needs.front()];
    state.changes.push_back(
        {state.now_ns, -static_cast<std::int64_t>(moved.bytes - moved.fixed_bytes)});
    // The buffer counts as away only now, because a swap back before the end finds its bytes still
    // here and needs no room.
    state.away[current.needs.front()] = true;
  } else if (current.op == Op::kDrop) {
    state.changes.push_back({state.now_ns, -bytes_of(current.needs.front())});
  } else if (current.op == Op::kRecompute) {
    state.changes.push_back({begin_ns, bytes_of(current.needs.front())});
  }
}

// The step is as long as its slowest rank. The bubble is the part of all ranks' time that is not
// computation.
Simulation Simulator::Finish() {
  Simulation result;
  for (const RankState& state : ranks_) {
    result.step_ns = std::max(result.step_ns, state.now_ns);
  }
  double computed = 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    FOREBAY_CHECK(state.at == plan_.programs[rank].instructions.size());
    // The last rank ends the step; the others wait for it.
    state.times.idle_ns = result.step_ns - state.now_ns;
    if (detail_ == SimulationDetail::kAll) {
      state.times.peak_bytes = PeakOf(state.changes, plan_.programs[rank].resident_bytes);
    }
    computed += static_cast<double>(state.times.compute_ns);
    result.ranks.push_back(state.times);
    result.spans.insert(result.spans.end(), state.spans.begin(), state.spans.end());
  }
  const double offered = static_cast<double>(result.step_ns) * static_cast<double>(ranks_.size());
  result.bubble = offered > 0 ? 1.0 - computed / offered : 0.0;
  return result;
}

}  // namespace

std::uint64_t Simulation::PeakBytes() const {
  std::uint64_t peak = 0;
  for (const RankTimes& times : ranks) peak = std::max(peak, times.peak_bytes);
  return peak;
}

Result<Simulation> SimulatePlan(const StepPlan& plan, const SimulationCosts& costs,
                                SimulationDetail detail) {
  // The negation also refuses NaN.
  for (const LinkCost* link : {&costs.message, &costs.collective, &costs.swap}) {
    if (!(link->bytes_per_ns > 0)) {
      return Error(ErrorCode::kInvalidArgument, "a link's rate must be greater than 0");
    }
  }
  FOREBAY_ASSIGN(const MessagePartners partners, MatchMessages(plan));
  return Simulator(plan, partners, costs, detail).Run();
}

}  // namespace forebay::train
