// Points 3, 6 and 7 of CheckPlan, by executing all lists at once without doing the work. A rank
// goes on while its current instruction has nothing to wait for; when no rank can go on, either all
// are done or they wait for each other. The state of every buffer is followed, and with it the
// bytes that are live. The buffer of a message counts until its receive is known to lie in the
// past, whatever the timing: a vector clock per rank tells.
#include "trainer/schedule/checker/plan_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/schedule/checker/plan_checks.h"

namespace forebay::train {
namespace {

// kLeaving: freed by the plan, but a send may still read it. kSwapping: on its way to the host, so
// that it counts on both sides.
enum class Life : std::uint8_t { kAbsent, kLive, kLeaving, kSwapping, kSwapped, kDropped };

// Clock[q]: that many instructions of rank q are known to be done. A vector clock (Mattern, 1989)
// tells which sends have gone out whatever the timing: those whose receives lie in the past.
using Clock = std::vector<std::uint32_t>;

// After a message its receiver knows all that the sender knew.
void Join(Clock& clock, const Clock& other) {
  for (std::size_t rank = 0; rank < clock.size(); ++rank) {
    clock[rank] = std::max(clock[rank], other[rank]);
  }
}

// A send whose buffer may still be read.
struct SentMessage {
  std::uint32_t peer = 0;
  std::uint32_t receive_at = 0;  // in the peer's list
  std::uint32_t buffer = 0;
  std::vector<std::uint32_t> frees;  // once it is known to have arrived
};

// Executes the lists with every wait, and nothing of the arithmetic.
class Execution {
 public:
  Execution(const StepPlan& plan, const MessagePartners& partners, const CheckOptions& options)
      : plan_(plan), partners_(partners), options_(options), ranks_(plan.programs.size()) {
    clocks_at_begin_.resize(plan.collectives.size());
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].clock.assign(ranks_.size(), 0);
      ranks_[rank].lives.assign(plan.programs[rank].buffers.size(), Life::kAbsent);
      ranks_[rank].returning.assign(plan.programs[rank].buffers.size(), 0);
      ranks_[rank].clocks.resize(plan.programs[rank].instructions.size());
      ranks_[rank].live_bytes = plan.programs[rank].resident_bytes;
      ranks_[rank].peak_bytes = ranks_[rank].live_bytes;
    }
  }

  // Lets each rank run as far as it can, again and again, until no rank can go on.
  Result<PlanFacts> Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        while (!Finished(rank) && CanRun(rank)) {
          FOREBAY_TRY(Execute(rank));
          moved = true;
        }
      }
    }
    FOREBAY_TRY(CheckFinished());
    PlanFacts facts;
    for (const RankState& state : ranks_) {
      facts.peak_bytes.push_back(state.peak_bytes);
      facts.peak_host_bytes.push_back(state.peak_host_bytes);
    }
    return facts;
  }

 private:
  struct RankState {
    std::size_t at = 0;
    Clock clock;
    std::vector<Clock> clocks;  // of sends and receives, as they ended
    std::vector<Life> lives;
    std::vector<SentMessage> leaving;
    std::uint64_t live_bytes = 0;
    std::uint64_t host_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_host_bytes = 0;
    std::vector<std::uint64_t> returning;  // of each buffer, on the host until it is used
  };

  const Instruction& Current(std::uint32_t rank) const {
    return plan_.programs[rank].instructions[ranks_[rank].at];
  }
  bool Finished(std::uint32_t rank) const {
    return ranks_[rank].at == plan_.programs[rank].instructions.size();
  }
  std::uint64_t BytesOf(std::uint32_t rank, std::uint32_t buffer) const {
    return plan_.programs[rank].buffers[buffer].bytes;
  }
  Error Fault(std::uint32_t rank, std::string_view what) const {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: {}", InstructionName(plan_, rank, ranks_[rank].at), what));
  }

  // The ranks that this one's current instruction waits for.
  std::vector<std::uint32_t> WaitsFor(std::uint32_t rank) const;
  bool CanRun(std::uint32_t rank) const { return WaitsFor(rank).empty(); }

  Status Execute(std::uint32_t rank);
  void Synchronise(std::uint32_t rank);
  void LetGo(std::uint32_t rank);
  Status NeedAndMake(std::uint32_t rank, std::size_t first_need);
  Status UseBuffers(std::uint32_t rank);
  Status Move(std::uint32_t rank, Life from, Life to);
  void FreeWhenGone(std::uint32_t rank, std::uint32_t buffer);
  void Free(std::uint32_t rank, std::uint32_t buffer);
  Status CheckFinished() const;

  const StepPlan& plan_;
  const MessagePartners& partners_;
  const CheckOptions& options_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<std::pair<std::uint32_t, Clock>>> clocks_at_begin_;
};

// Under the strictest options sends and collectives wait as well: a plan that ends then does so
// with any transport.
std::vector<std::uint32_t> Execution::WaitsFor(std::uint32_t rank) const {
  const RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  // The ranks that hold this one up; for the message where a plan hangs.
  std::vector<std::uint32_t> waited;
  if (current.op == Op::kReceive || (current.op == Op::kSend && options_.sends_wait)) {
    // A send that waits meets its receive when both are reached.
    const std::uint32_t partner = partners_[rank][state.at];
    const std::size_t reached = ranks_[current.peer].at;
    const bool there = options_.sends_wait ? reached >= partner : reached > partner;
    if (!there) waited.push_back(current.peer);
  }
  const bool begins = current.op == Op::kCollectiveBegin && options_.collectives_wait;
  if (begins || current.op == Op::kCollectiveEnd) {
    const auto& begun = clocks_at_begin_[current.collective];
    for (const std::uint32_t member : plan_.collectives[current.collective].members) {
      const bool has_begun = std::ranges::any_of(
          begun, [member](const auto& entry) { return entry.first == member; });
      const bool stands_there = !Finished(member) &&
                                Current(member).op == Op::kCollectiveBegin &&
                                Current(member).collective == current.collective;
      if (!has_begun && !(begins && stands_there)) waited.push_back(member);
    }
  }
  return waited;
}

// Learns what the other ends knew.
void Execution::Synchronise(std::uint32_t rank) {
  RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  if (current.op == Op::kReceive) {
    const Clock& sent = ranks_[current.peer].clocks[partners_[rank][state.at]];
    // Everything that the sender knew when it sent is known here from now on.
    if (!sent.empty()) Join(state.clock, sent);
  } else if (current.op == Op::kCollectiveEnd) {
    for (const auto& [member, clock] : clocks_at_begin_[current.collective]) {
      Join(state.clock, clock);
    }
  }
}

// One instruction of a rank: what it learns from other ranks, what becomes of its buffers, and what
// others may learn from it later.
Status Execution::Execute(std::uint32_t rank) {
  RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  Synchronise(rank);
  LetGo(rank);
  switch (current.op) {
    case Op::kSwapOut: FOREBAY_TRY(Move(rank, Life::kLive, Life::kSwapping)); break;
    case Op::kSwapEnd: FOREBAY_TRY(Move(rank, Life::kSwapping, Life::kSwapped)); break;
    case Op::kSwapIn: {
      // It may still be on its way out, and turns back when it has gone.
      const bool gone = state.lives[current.needs.front()] != Life::kSwapping;
      FOREBAY_TRY(Move(rank, gone ? Life::kSwapped : Life::kSwapping, Life::kLive));
      break;
    }
    case Op::kDrop: FOREBAY_TRY(Move(rank, Life::kLive, Life::kDropped)); break;
    case Op::kRecompute: FOREBAY_TRY(Move(rank, Life::kDropped, Life::kLive)); break;
    default: FOREBAY_TRY(UseBuffers(rank)); break;
  }
  state.clock[rank] = static_cast<std::uint32_t>(state.at) + 1;
  if (current.op == Op::kSend) state.clocks[state.at] = state.clock;
  if (current.op == Op::kCollectiveBegin) {
    clocks_at_begin_[current.collective].emplace_back(rank, state.clock);
  }
  ++state.at;
  return {};
}

// Buffers of messages that are known to have arrived.
void Execution::LetGo(std::uint32_t rank) {
  RankState& state = ranks_[rank];
  for (auto sent = state.leaving.begin(); sent != state.leaving.end();) {
    // The peer is not known to have executed the receive.
    if (!options_.sends_wait && state.clock[sent->peer] <= sent->receive_at) {
      ++sent;
      continue;
    }
    const std::vector<std::uint32_t> frees = std::move(sent->frees);
    const auto index = sent - state.leaving.begin();
    state.leaving.erase(sent);
    for (const std::uint32_t buffer : frees) FreeWhenGone(rank, buffer);
    sent = state.leaving.begin() + index;
  }
}

// A buffer that is on its way to a stage still is freed when it is known to be there.
void Execution::FreeWhenGone(std::uint32_t rank, std::uint32_t buffer) {
  RankState& state = ranks_[rank];
  const auto sent = std::ranges::find(state.leaving, buffer, &SentMessage::buffer);
  if (sent == state.leaving.end()) {
    Free(rank, buffer);
  } else {
    state.lives[buffer] = Life::kLeaving;
    sent->frees.push_back(buffer);
  }
}

// Checks the buffers that an instruction needs and brings those that it makes to life. `first_need`
// skips the buffer that is moved itself.
Status Execution::NeedAndMake(std::uint32_t rank, std::size_t first_need) {
  RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  for (std::size_t at = first_need; at < current.needs.size(); ++at) {
    if (state.lives[current.needs[at]] != Life::kLive) {
      return Fault(rank, "a buffer it needs is not there");
    }
    // The instruction waits until its buffer is back. From then on the host's memory is free.
    // `returning` is 0 for buffers that are not on their way.
    state.host_bytes -= std::exchange(state.returning[current.needs[at]], 0);
  }
  for (const std::uint32_t buffer : current.makes) {
    if (state.lives[buffer] != Life::kAbsent) {
      return Fault(rank, "a buffer it makes is there already");
    }
    state.lives[buffer] = Life::kLive;
    state.live_bytes += BytesOf(rank, buffer);
  }
  state.peak_bytes =
      std::max(state.peak_bytes, state.live_bytes + ScratchBytes(plan_, rank, current));
  return {};
}

// What all instructions but moves do with buffers. A send keeps what it frees until it has gone
// out.
Status Execution::UseBuffers(std::uint32_t rank) {
  RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  FOREBAY_TRY(NeedAndMake(rank, 0));
  for (const std::uint32_t buffer : current.frees) {
    if (state.lives[buffer] != Life::kLive) return Fault(rank, "a buffer it frees is not there");
    if (current.op == Op::kSend) {
      state.lives[buffer] = Life::kLeaving;
    } else {
      FreeWhenGone(rank, buffer);
    }
  }
  if (current.op == Op::kSend) {
    state.leaving.push_back({.peer = current.peer,
                             .receive_at = partners_[rank][state.at],
                             .buffer = current.needs.front(),
                             .frees = current.frees});
  }
  return {};
}

// Changes the state of a buffer that is swapped, dropped or computed again, and counts its bytes on
// the side where it is from now on; during a transfer on both.
Status Execution::Move(std::uint32_t rank, Life from, Life to) {
  RankState& state = ranks_[rank];
  const Instruction& current = Current(rank);
  const std::uint32_t buffer = current.needs.front();
  if (state.lives[buffer] != from) return Fault(rank, "the buffer is in another state");
  FOREBAY_TRY(NeedAndMake(rank, 1));
  const bool drops = from == Life::kDropped || to == Life::kDropped;
  const Buffer& moved = plan_.programs[rank].buffers[buffer];
  const std::uint64_t bytes = drops ? moved.bytes : moved.bytes - moved.fixed_bytes;
  const auto here = [](Life life) { return life == Life::kLive || life == Life::kSwapping; };
  const auto there = [](Life life) { return life == Life::kSwapped || life == Life::kSwapping; };
  if (here(to) && !here(from)) state.live_bytes += bytes;
  if (here(from) && !here(to)) state.live_bytes -= bytes;
  if (there(to) && !there(from)) state.host_bytes += bytes;
  if (there(from) && !there(to)) state.returning[buffer] = bytes;
  state.peak_bytes =
      std::max(state.peak_bytes, state.live_bytes + ScratchBytes(plan_, rank, current));
  state.peak_host_bytes = std::max(state.peak_host_bytes, state.host_bytes);
  state.lives[buffer] = to;
  return {};
}

// A buffer that was brought back and never used since leaves the host as well.
void Execution::Free(std::uint32_t rank, std::uint32_t buffer) {
  ranks_[rank].host_bytes -= std::exchange(ranks_[rank].returning[buffer], 0);
  ranks_[rank].lives[buffer] = Life::kAbsent;
  ranks_[rank].live_bytes -= BytesOf(rank, buffer);
}

// After the execution: a rank that has not ended waits for ever, and a buffer that still lives
// outlives the step.
Status Execution::CheckFinished() const {
  // Each rank that has not ended, and one rank that it waits for.
  std::string waits;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (Finished(rank)) continue;
    waits += fmt::format("{}{} for rank {}", waits.empty() ? "" : "; ",
                         InstructionName(plan_, rank, ranks_[rank].at), WaitsFor(rank).front());
  }
  if (!waits.empty()) {
    return Error(ErrorCode::kInvalidArgument, "ranks wait for each other for ever: " + waits);
  }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t buffer = 0; buffer < ranks_[rank].lives.size(); ++buffer) {
      const Life life = ranks_[rank].lives[buffer];
      if (life == Life::kAbsent || life == Life::kLeaving) continue;
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("rank {}: buffer {} of micro-batch {} outlives the step", rank,
                               buffer, plan_.programs[rank].buffers[buffer].micro_batch));
    }
  }
  return {};
}

}  // namespace

Result<PlanFacts> CheckPlan(const StepPlan& plan, const CheckOptions& options) {
  FOREBAY_TRY(CheckIndices(plan));
  FOREBAY_TRY(CheckWork(plan));
  FOREBAY_ASSIGN(const MessagePartners partners, MatchMessages(plan));
  FOREBAY_TRY(CheckCollectiveOrder(plan));
  // Each check relies on those before it.
  FOREBAY_ASSIGN(PlanFacts facts, Execution(plan, partners, options).Run());
  for (std::uint32_t rank = 0; rank < facts.peak_bytes.size(); ++rank) {
    if (options.budget_bytes != 0 && facts.peak_bytes[rank] > options.budget_bytes) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("rank {} needs up to {} bytes at once, its budget is {}", rank,
                               facts.peak_bytes[rank], options.budget_bytes));
    }
  }
  return facts;
}

// For a search that builds its plans itself: only messages are matched, because the execution
// needs their partners.
Result<PlanFacts> MeasureBytes(const StepPlan& plan) {
  FOREBAY_ASSIGN(const MessagePartners partners, MatchMessages(plan));
  return Execution(plan, partners, {}).Run();
}

}  // namespace forebay::train
