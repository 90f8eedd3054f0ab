// Executes the list in its order. Sends and collectives are begun and left alone; after every
// instruction, and during every wait, Progress tests what is under way. A buffer that a send still
// reads is released only when the send is done, whatever the list says. Errors get the step and the
// instruction as context, because a rank's error is often caused by another one.
#include "trainer/schedule/run/plan_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::train {

PlanRunner::PlanRunner(const StepPlan& plan, StageWorker& worker, Transport& transport,
                       RunnerOptions options)
    : plan_(plan),
      program_(plan.programs.at(transport.rank())),
      worker_(worker),
      transport_(transport),
      options_(std::move(options)) {
  FOREBAY_CHECK(options_.now_ns && plan.programs.size() == transport.size());
}

// Each instruction: wait for its swaps, execute it, continue what is under way, and account for its
// time.
Result<RankReport> PlanRunner::RunStep(const StepIdentity& identity) {
  FOREBAY_CHECK(identity.samples_hashes.size() == plan_.micro_batches);
  identity_ = &identity;
  report_ = {};
  counted_bytes_ = transport_.sent_bytes();
  returning_.clear();
  const std::uint64_t began_ns = options_.now_ns();
  report_.began_ns = began_ns;
  std::uint64_t before_ns = began_ns;
  for (std::uint32_t at = 0; at < program_.instructions.size(); ++at) {
    const Instruction& instruction = program_.instructions[at];
    if (options_.progress != nullptr) Note(instruction);
    // What AwaitSwaps adds is subtracted from the instruction's own time below.
    const std::uint64_t swaps_ns = report_.times.wait_swap_ns;
    Status done = AwaitSwaps(instruction);
    const std::uint64_t waited_ns = report_.times.wait_swap_ns - swaps_ns;
    if (done.has_value()) done = Execute(instruction);
    if (done.has_value()) {
      const auto progress = Progress();
      if (!progress.has_value()) done = progress.error();
    }
    if (!done.has_value()) {
      return done.error().WithContext(
          fmt::format("step {}, {}", identity.step,
                      InstructionName(plan_, transport_.rank(), at)));
    }
    const std::uint64_t now_ns = options_.now_ns();
    Account(instruction, now_ns - before_ns - waited_ns);
    if (options_.traces) {
      report_.spans.push_back({.rank = transport_.rank(),
                               .instruction = at,
                               .begin_ns = before_ns - began_ns,
                               .end_ns = now_ns - began_ns});
    }
    before_ns = now_ns;
  }
  // The next step makes the same buffers again, so that nothing may be under way.
  FOREBAY_TRY(DrainSends());
  const std::uint64_t now_ns = options_.now_ns();
  report_.times.wait_message_ns += now_ns - before_ns;
  report_.step_ns = now_ns - began_ns;
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    // The transport counts from the start of the run.
    report_.sent_bytes[lane] = transport_.sent_bytes()[lane] - counted_bytes_[lane];
  }
  return std::move(report_);
}

const Buffer& PlanRunner::BufferAt(std::uint32_t index) const {
  return program_.buffers[index];
}

// The hash of the samples is part of it: two replicas whose feeds disagree get an error, not a
// wrong gradient.
MessageTag PlanRunner::TagOf(const Instruction& instruction) const {
  return {.step = identity_->step,
          .micro_batch = instruction.micro_batch,
          .edge = instruction.edge,
          .samples_hash = identity_->samples_hashes[instruction.micro_batch]};
}

// For the watchdog: what this rank does, and whether it waits for others.
void PlanRunner::Note(const Instruction& instruction) const {
  const std::uint32_t rank = transport_.rank();
  options_.progress->At(
      fmt::format("{} of stage {}", Describe(plan_, rank, instruction),
                  plan_.layout.StageOf(rank)),
      instruction.op == Op::kReceive || instruction.op == Op::kCollectiveEnd);
}

// Buffers that a swap is bringing back are waited for at their first use, and not earlier.
Status PlanRunner::AwaitSwaps(const Instruction& instruction) {
  if (returning_.empty() || instruction.op == Op::kSwapIn) return {};
  const std::uint64_t began_ns = options_.now_ns();
  for (const std::uint32_t buffer : instruction.needs) {
    // Waits once: a later user finds the buffer there.
    if (std::erase(returning_, buffer) == 0) continue;
    FOREBAY_TRY(worker_.AwaitBack(BufferAt(buffer)));
  }
  report_.times.wait_swap_ns += options_.now_ns() - began_ns;
  return {};
}

// What each instruction means. Instructions that end a buffer release it after their work.
Status PlanRunner::Execute(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kSend: return Send(instruction);
    case Op::kReceive: return Receive(instruction);
    case Op::kCollectiveBegin: {
      const CollectiveTag tag{.step = identity_->step, .edge = instruction.collective};
      FOREBAY_ASSIGN(std::unique_ptr<PendingCollective> pending,
                     worker_.MakeCollective(instruction.collective, tag));
      return collectives_.Begin(instruction.collective, std::move(pending), transport_);
    }
    case Op::kCollectiveEnd: return EndCollective(instruction);
    case Op::kFeed: return worker_.Feed(BufferAt(instruction.makes.front()));
    case Op::kForward:
      FOREBAY_TRY(worker_.Forward(instruction.micro_batch, instruction.module));
      break;
    case Op::kBackward:
      FOREBAY_TRY(worker_.Backward(instruction.micro_batch, instruction.module));
      break;
    case Op::kUpdate: return worker_.Update();
    // Whoever needs it next waits for it (AwaitSwaps).
    case Op::kSwapIn: returning_.push_back(instruction.needs.front()); [[fallthrough]];
    case Op::kSwapOut:
    case Op::kSwapEnd:
    case Op::kDrop:
    case Op::kRecompute:
      return worker_.Move(instruction.op, BufferAt(instruction.needs.front()));
  }
  Release(instruction.frees);
  return {};
}

// The bytes stay where they are, so the buffers that the send frees are released when it is done
// (Progress).
Status PlanRunner::Send(const Instruction& instruction) {
  FOREBAY_ASSIGN(const std::span<const std::byte> bytes,
                 worker_.Outgoing(BufferAt(instruction.needs.front())));
  // Each channel of the plan is a lane of the transport.
  const Lane lane =
      instruction.channel == Channel::kActivation ? Lane::kActivation : Lane::kGradient;
  FOREBAY_ASSIGN(const Ticket ticket,
                 transport_.BeginSend(instruction.peer, lane, TagOf(instruction), bytes));
  sends_.push_back(
      {.ticket = ticket, .buffer = instruction.needs.front(), .frees = instruction.frees});
  return {};
}

// Waits, but lets sends and reductions continue meanwhile: the peer may need them before it can
// send.
Status PlanRunner::Receive(const Instruction& instruction) {
  FOREBAY_ASSIGN(const std::span<std::byte> room,
                 worker_.Incoming(BufferAt(instruction.makes.front())));
  const Lane lane =
      instruction.channel == Channel::kActivation ? Lane::kActivation : Lane::kGradient;
  FOREBAY_ASSIGN(const Ticket ticket,
                 transport_.BeginReceive(instruction.peer, lane, TagOf(instruction), room));
  while (true) {
    FOREBAY_ASSIGN(const bool done, transport_.Test(ticket));
    if (done) return {};
    // The peer may be waiting for a sum that this rank holds: reductions go on meanwhile.
    FOREBAY_ASSIGN(std::vector<Ticket> waited, Progress());
    waited.insert(waited.begin(), ticket);
    FOREBAY_TRY(transport_.AwaitAny(waited, options_.timeout_ns));
  }
}

// Waits for everything that is under way, and not for the one collective: others may have to end
// first.
Status PlanRunner::EndCollective(const Instruction& instruction) {
  while (true) {
    FOREBAY_ASSIGN(const std::vector<Ticket> waited, Progress());
    if (collectives_.Done(instruction.collective)) {
      return worker_.EndCollective(instruction.collective);
    }
    FOREBAY_TRY(transport_.AwaitAny(waited, options_.timeout_ns));
  }
}

// A buffer that is still being sent is handed to that send, which releases it at its end.
void PlanRunner::Release(const std::vector<std::uint32_t>& buffers) {
  for (const std::uint32_t buffer : buffers) {
    // An output may be on its way to several stages, and be done with the later ones first.
    const auto sent = std::ranges::find(sends_, buffer, &PendingSend::buffer);
    if (sent == sends_.end()) {
      worker_.Release(BufferAt(buffer));
    } else {
      sent->frees.push_back(buffer);
    }
  }
}

// Ends the sends that are done, and advances the collectives.
Result<std::vector<Ticket>> PlanRunner::Progress() {
  for (auto send = sends_.begin(); send != sends_.end();) {
    FOREBAY_ASSIGN(const bool done, transport_.Test(send->ticket));
    if (done) {
      const std::vector<std::uint32_t> frees = std::move(send->frees);
      send = sends_.erase(send);
      // Release may look through sends_, so that the iterator is made again from the index.
      const auto index = send - sends_.begin();
      Release(frees);
      send = sends_.begin() + index;
    } else {
      ++send;
    }
  }
  return collectives_.Advance(transport_);
}

// Waits for the sends in their order. All must be done, so the order does not matter.
Status PlanRunner::DrainSends() {
  while (!sends_.empty()) {
    FOREBAY_TRY(transport_.Wait(sends_.front().ticket, options_.timeout_ns));
    const std::vector<std::uint32_t> frees = std::move(sends_.front().frees);
    sends_.erase(sends_.begin());
    Release(frees);
  }
  return {};
}

// Each instruction's time belongs to one class.
void PlanRunner::Account(const Instruction& instruction, std::uint64_t ns) {
  switch (instruction.op) {
    case Op::kForward:
    case Op::kBackward: report_.times.compute_ns += ns; break;
    // The update is part of the computation, and also listed by itself.
    case Op::kUpdate:
      report_.times.compute_ns += ns;
      report_.update_ns += ns;
      break;
    case Op::kRecompute: report_.times.recompute_ns += ns; break;
    case Op::kReceive: report_.times.wait_message_ns += ns; break;
    case Op::kCollectiveEnd: report_.times.wait_collective_ns += ns; break;
    case Op::kSwapOut:
    case Op::kSwapEnd:
    case Op::kSwapIn: report_.times.wait_swap_ns += ns; break;
    default: report_.times.other_ns += ns; break;
  }
}

}  // namespace forebay::train
