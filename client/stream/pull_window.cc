// Bookkeeping of the batches that a stream has asked for. Searches are linear: a window has a few
// batches (prefetch_depth and those that were named), so an index would cost more than it saves.
#include "client/stream/pull_window.h"

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::internal {

PulledBatch* PullWindow::AskNext() {
  if (at_end()) return nullptr;
  PulledBatch& batch = queue_.emplace_back();
  batch.name = {.epoch = next_.epoch, .step = next_.step};
  next_.step = StepId(next_.step.value() + 1);
  // The window runs on into the next epoch, so that its first batches are fetched while the last
  // ones of this epoch are consumed.
  if (next_.step.value() == range_.steps_per_epoch) {
    next_ = {EpochId(next_.epoch.value() + 1), StepId(0)};
  }
  return &batch;
}

PulledBatch* PullWindow::AskNamed(const BatchName& name) {
  // Allocated one by one: the caller that waits keeps a pointer to it while others come and go. The
  // queue, a deque, keeps its addresses as well where batches are added and taken at its ends.
  auto batch = std::make_unique<PulledBatch>();
  batch->name = name;
  named_.push_back(std::move(batch));
  return named_.back().get();
}

PulledBatch* PullWindow::FindAsked(const BatchName& name) {
  // Only what was sent can be answered. A batch of this name that was not sent yet, or has been
  // answered, makes the daemon's message one that was not asked for.
  const auto waits = [&](const PulledBatch& batch) {
    return batch.phase == PulledBatch::Phase::kAsked && batch.sent && SameName(batch.name, name);
  };
  for (PulledBatch& batch : queue_) {
    if (waits(batch)) return &batch;
  }
  for (const std::unique_ptr<PulledBatch>& batch : named_) {
    if (waits(*batch)) return batch.get();
  }
  return nullptr;
}

// By the state's address, not by name: after a reconnect a batch of the same name may have another
// state, and a late report of a worker must not be taken for it.
PulledBatch* PullWindow::FindState(const Batch::State* state) {
  for (PulledBatch& batch : queue_) {
    if (batch.state.get() == state) return &batch;
  }
  for (const std::unique_ptr<PulledBatch>& batch : named_) {
    if (batch->state.get() == state) return batch.get();
  }
  return nullptr;
}

// A batch with a state counts there, as one of StreamCore's live states, until its last copy is
// gone.
std::size_t PullWindow::without_state() const {
  const auto is_without = [](const PulledBatch& batch) { return batch.state == nullptr; };
  const auto queued = std::ranges::count_if(queue_, is_without);
  const auto named = std::ranges::count_if(
      named_, [&](const std::unique_ptr<PulledBatch>& batch) { return is_without(*batch); });
  return static_cast<std::size_t>(queued + named);
}

PulledBatch PullWindow::TakeBack() {
  FOREBAY_CHECK(!queue_.empty());
  PulledBatch last = std::move(queue_.back());
  queue_.pop_back();
  // The order has no gaps: the step that goes back is the one that AskNext names next.
  next_ = {last.name.epoch, last.name.step};
  return last;
}

PulledBatch PullWindow::TakeNamed(const PulledBatch* batch) {
  const auto found = std::find_if(named_.begin(), named_.end(),
                                  [&](const auto& owned) { return owned.get() == batch; });
  FOREBAY_CHECK(found != named_.end());
  PulledBatch taken = std::move(**found);
  named_.erase(found);
  return taken;
}

PulledBatch* PullWindow::FindNamed(const BatchName& name) {
  for (const std::unique_ptr<PulledBatch>& batch : named_) {
    if (SameName(batch->name, name)) return batch.get();
  }
  return nullptr;
}

PulledBatch PullWindow::Remove(const PulledBatch* batch) {
  // Erasing within a deque moves other elements. That happens only once the stream is finishing,
  // when no caller waits for a batch of the queue.
  for (auto place = queue_.begin(); place != queue_.end(); ++place) {
    if (&*place != batch) continue;
    PulledBatch taken = std::move(*place);
    queue_.erase(place);
    return taken;
  }
  return TakeNamed(batch);
}

}  // namespace forebay::internal
