// The sending side of a stream: when a request is due, who sends it, and what is in it; and the
// batches that a daemon keeps for this reader until a request says that it may free them. A message
// to the daemon costs gRPC's work and several wake-ups on both sides, as much as copying 200 KiB.
// So releases and pulls are collected until half a window of them is there. They go at once where
// the daemon has little to do, and soon where the caller waits. A caller that has work to do does
// not send: it notifies the sender thread.
#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>
#include <utility>

#include "client/stream/gone_readers.h"
#include "client/stream/stream_core.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {
namespace {

using Phase = PulledBatch::Phase;

// The entry of this batch.
template <typename HeldIds>
auto FindHeld(HeldIds& held, const Batch::State& state) {
  return std::ranges::find_if(held, [&](const auto& id) {
    return id.call_number == state.call_number && id.wire_id == state.wire_id;
  });
}

}  // namespace

bool StreamCore::HoldsBack() const {
  const auto is_unsent = [](const PulledBatch& batch) {
    return batch.phase == Phase::kAsked && !batch.sent;
  };
  return !releases_.empty() || std::ranges::any_of(window_.queue(), is_unsent);
}

bool StreamCore::SendIsDue() const {
  if ((finishing_ && !finish_sent_) || (closing_ && !close_sent_)) return true;
  for (const PulledBatch& batch : window_.named()) {
    // A caller waits for a named batch already: Pull does not ask ahead.
    if (batch.phase == Phase::kAsked && !batch.sent) return true;
  }
  if (!HoldsBack()) return false;
  // The batch that the caller waits for may need the memory or the look-ahead that these requests
  // give; Finish waits for all that are under way.
  if (has_waited_ || finishing_) return true;
  // Three counts decide: batches that the daemon has not been asked for yet, batches that it is
  // working on, and batches that the caller can take without waiting.
  std::size_t unsent = 0;
  std::size_t under_way = 0;
  std::size_t arrived = 0;
  for (const PulledBatch& batch : window_.queue()) {
    if (batch.phase == Phase::kAsked) {
      ++(batch.sent ? under_way : unsent);
    } else {
      ++arrived;
    }
  }
  const std::size_t worth_sending = std::max<std::size_t>(1, (settings_.prefetch_depth + 1) / 2);
  if (unsent >= worth_sending || releases_.size() >= worth_sending) return true;
  // Few batches stand between the caller and a wait. With pulls the daemon goes on; releases alone
  // (at the end of the order) need no hurry while it is at work.
  const bool runs_dry = under_way + arrived < worth_sending;
  return runs_dry && (unsent != 0 || under_way == 0);
}

// Marks the write as under way, then lets go of the mutex: gRPC may take long, and may call back on
// this thread. Only one write is out at a time; OnWritten sends what has become due meanwhile.
bool StreamCore::Send() {
  if (!MaySend()) return false;
  const bool writes = SendIsDue();
  if (!writes && !CloseIsDue()) return false;
  if (writes) BuildRequest(call_->request());
  (writes ? write_out_ : writes_done_) = true;
  StreamCall& call = *call_;
  call.Hold();  // it does not end before the hold is gone; then it may be gone, too
  mutex_.Unlock();
  if (writes) {
    call.Write();
  } else {
    call.WritesDone();
  }
  call.LetGo();
  mutex_.Lock();
  return true;
}

bool StreamCore::CallsSender() {
  if (sender_called_ || !MaySend()) return false;
  sender_called_ = SendIsDue() || CloseIsDue();
  return sender_called_;
}

void StreamCore::RunSender() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    sender_called_ = false;
    if (!Send()) sender_wakes_.Wait(mutex_);
  }
}

void StreamCore::BuildRequest(v1::StreamRequest& request) {
  request.Clear();
  request.mutable_release()->Add(releases_.begin(), releases_.end());
  releases_.clear();
  AddPulls(request);
  if (finishing_ && !finish_sent_) {
    request.set_finish(true);
    finish_sent_ = true;
  }
  request.set_close(closing_);
  close_sent_ = closing_;
}

void StreamCore::AddPulls(v1::StreamRequest& request) {
  v1::Pull* pull = nullptr;
  for (PulledBatch& batch : window_.queue()) {
    if (batch.phase != Phase::kAsked || batch.sent) continue;
    batch.sent = true;
    // Steps that follow one another become one pull: a full window is one entry, not one per batch.
    const bool continues = pull != nullptr && pull->epoch() == batch.name.epoch.value() &&
                           pull->first_step() + pull->step_count() == batch.name.step.value() &&
                           pull->step_count() < limits::kPullStepsMax;
    if (continues) {
      pull->set_step_count(pull->step_count() + 1);
      continue;
    }
    pull = request.add_pulls();
    pull->set_epoch(batch.name.epoch.value());
    pull->set_first_step(batch.name.step.value());
    pull->set_step_count(1);
  }
  for (PulledBatch& batch : window_.named()) {
    if (batch.phase != Phase::kAsked || batch.sent) continue;
    batch.sent = true;
    v1::Pull* named = request.add_pulls();
    named->set_epoch(batch.name.epoch.value());
    named->set_first_step(batch.name.step.value());
    named->set_step_count(1);
    named->set_micro_size(batch.name.micro_size);
    named->set_micro_index(batch.name.micro_index);
  }
}

// Tells the daemon which of its batches are still read, so that it frees the others. A daemon that
// was restarted knows of none, and does not need to: the memory was the former one's, and stays
// mapped.
void StreamCore::NameHeld(v1::OpenStream& open) {
  const DaemonConnection& connection = call_->connection();
  if (connection.is_other_node()) open.set_inline_payload(true);
  // A daemon that was started again and still lists the data set says so, instead of holding up a
  // stream that could be read at another node meanwhile.
  if (schema_ != nullptr) open.set_wait_for_catalog(false);
  daemon_generation_ = connection.generation();
  memory_ = open.inline_payload() ? 0 : daemon_generation_;
  // Batches that came inside messages need not be named in a later call. While the stream reads
  // from another node, it remembers the batches in shared memory of this node's daemon, which may
  // only have stood still.
  std::erase_if(held_, [this](const HeldId& held) FOREBAY_REQUIRES(mutex_) {
    return held.memory == 0 || (memory_ != 0 && held.memory != memory_);
  });
  open.set_call(call_number_);
  if (memory_ != 0) {
    for (const HeldId& held : held_) open.add_still_held(held.wire_id);
  }
  for (const std::uint64_t reader : GoneReaders::OfProcess().Take(daemon_generation_)) {
    open.add_gone_readers(reader);
  }
}

// For the next call. This one has ended without an answer, and its first request is its only one.
void StreamCore::PutBackGoneReaders() {
  for (const std::uint64_t reader : call_->request().open().gone_readers()) {
    GoneReaders::OfProcess().Add(daemon_generation_, reader);
  }
}

// A daemon that could not keep a batch does not want it released either.
void StreamCore::KeepHeld(const v1::Opened& opened) {
  if (memory_ == 0) return;  // it was not asked to keep any
  const auto is_kept = [&](std::uint64_t wire_id) {
    return std::ranges::find(opened.still_held(), wire_id) != opened.still_held().end();
  };
  std::vector<HeldId> lost;
  std::erase_if(held_, [&](const HeldId& held) {
    if (is_kept(held.wire_id)) return false;
    lost.push_back(held);
    return true;
  });
  std::erase_if(releases_, [&](std::uint64_t wire_id) { return !is_kept(wire_id); });
  AskForLost(lost);
}

void StreamCore::AskForLost(const std::vector<HeldId>& lost) {
  // Not by ForEach: it would call a function that requires the mutex, and cannot say that it is
  // held.
  for (std::list<PulledBatch>* batches : {&window_.queue(), &window_.named()}) {
    for (PulledBatch& batch : *batches) {
      if (batch.state == nullptr || FindHeld(lost, *batch.state) == lost.end()) continue;
      lost_states_.push_back(std::move(batch.state));
      batch = PulledBatch{.name = batch.name, .state = nullptr, .error = std::nullopt};
    }
  }
}

void StreamCore::Recycle(std::unique_ptr<Batch::State> state) {
  // Otherwise the daemon holds nothing for it.
  if (const auto held = FindHeld(held_, *state); held != held_.end()) {
    // The daemon of this node, while the stream reads from another one, learns it by NameHeld.
    if (held->memory == memory_) releases_.push_back(held->wire_id);
    held_.erase(held);
  }
  // More than this cannot be in use at once, so a larger pool would only keep memory.
  if (pool_.size() < credits_) pool_.push_back(std::move(state));
}

}  // namespace forebay::internal
