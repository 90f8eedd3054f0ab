// The sending side of a stream: when a request is due, who sends it, and what is in it. A message
// to the daemon costs gRPC's work and several wake-ups on both sides, as much as copying 200 KiB.
// So releases and pulls are collected until half a window of them is there. They go at once where
// the daemon has little to do, and soon where the caller waits. A caller that has work to do does
// not send: it notifies the sender thread.
#include <algorithm>
#include <cstddef>
#include <mutex>

#include "client/stream/stream_core.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {
namespace {

using Phase = PulledBatch::Phase;

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

}  // namespace forebay::internal
