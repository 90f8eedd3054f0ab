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
  PulledBatch& batch = named_.emplace_back();
  batch.name = name;
  return &batch;
}

template <typename Condition>
PulledBatch* PullWindow::Find(Condition is_it) {
  for (std::list<PulledBatch>* list : {&queue_, &named_}) {
    const auto found = std::ranges::find_if(*list, is_it);
    if (found != list->end()) return &*found;
  }
  return nullptr;
}

// Only what was sent can be answered. A batch of this name that was not sent yet, or has been
// answered, makes the daemon's message one that was not asked for.
PulledBatch* PullWindow::FindAsked(const BatchName& name) {
  return Find([&](const PulledBatch& batch) {
    return batch.phase == PulledBatch::Phase::kAsked && batch.sent && SameName(batch.name, name);
  });
}

// By the state's address, not by name: after a reconnect a batch of the same name may have another
// state, and a late report of a worker must not be taken for it.
PulledBatch* PullWindow::FindState(const Batch::State* state) {
  return Find([&](const PulledBatch& batch) { return batch.state.get() == state; });
}

// A batch with a state counts there, as one of StreamCore's live states, until its last copy is
// gone.
std::size_t PullWindow::without_state() const {
  const auto is_without = [](const PulledBatch& batch) { return batch.state == nullptr; };
  return static_cast<std::size_t>(std::ranges::count_if(queue_, is_without) +
                                  std::ranges::count_if(named_, is_without));
}

PulledBatch PullWindow::TakeBack() {
  FOREBAY_CHECK(!queue_.empty());
  PulledBatch last = std::move(queue_.back());
  queue_.pop_back();
  // The order has no gaps: the step that goes back is the one that AskNext names next.
  next_ = {last.name.epoch, last.name.step};
  return last;
}

PulledBatch* PullWindow::FindNamed(const BatchName& name) {
  const auto found = std::ranges::find_if(
      named_, [&](const PulledBatch& batch) { return SameName(batch.name, name); });
  return found == named_.end() ? nullptr : &*found;
}

PulledBatch PullWindow::Remove(const PulledBatch* batch) {
  const auto is_it = [&](const PulledBatch& other) { return &other == batch; };
  std::list<PulledBatch>& list = std::ranges::any_of(queue_, is_it) ? queue_ : named_;
  const auto place = std::ranges::find_if(list, is_it);
  FOREBAY_CHECK(place != list.end());
  PulledBatch taken = std::move(*place);
  list.erase(place);
  return taken;
}

void PullWindow::Clear() {
  queue_.clear();
  named_.clear();
}

}  // namespace forebay::internal
