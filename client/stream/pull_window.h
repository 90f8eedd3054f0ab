// PullWindow: which batches have been asked for, which are there, and in which order they are
// handed out. Pure bookkeeping, without locks, threads or wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "forebay/batch.h"
#include "forebay/batch_stream.h"
#include "proto/contract/ids.h"
#include "proto/contract/result.h"

namespace forebay::internal {

using StatePtr = std::shared_ptr<const Batch::State>;

// A place in (epoch, step) order.
struct StepCursor {
  EpochId epoch = {};
  StepId step = {};

  auto operator<=>(const StepCursor&) const = default;
};

// One batch that was asked for.
struct PulledBatch {
  enum class Phase { kAsked, kTransforming, kReady, kFailed };
  BatchName name;
  Phase phase = Phase::kAsked;
  bool sent = false;           // the daemon knows
  StatePtr state;              // from kTransforming on
  std::optional<Error> error;  // kFailed
  bool is_hooks_error = false; // kFailed: the transform hook's, not the daemon's
  bool abandoned = false;      // a named batch whose caller gave up waiting
};

// Externally synchronised. Batches of Next's order form a queue without gaps; batches asked
// for by Pull stand beside it.
class PullWindow {
 public:
  // `steps_per_epoch` is at least 1. The order runs from `begin` to `end`, exclusive.
  struct Range {
    std::uint64_t steps_per_epoch = 1;
    StepCursor begin;
    StepCursor end;
  };
  explicit PullWindow(const Range& range) : range_(range), next_(range.begin) {}

  // Appends the next step of the order; null at its end.
  PulledBatch* AskNext();
  bool at_end() const { return next_ >= range_.end; }
  // Appends a named batch.
  PulledBatch* AskNamed(const BatchName& name);
  // The one that was sent and waits for a batch of this name (phase kAsked), or null.
  PulledBatch* FindAsked(const BatchName& name);
  // The one whose state this is, or null.
  PulledBatch* FindState(const Batch::State* state);

  // A batch keeps its address until it is taken out.
  std::list<PulledBatch>& queue() { return queue_; }
  const std::list<PulledBatch>& queue() const { return queue_; }
  std::list<PulledBatch>& named() { return named_; }
  const std::list<PulledBatch>& named() const { return named_; }
  // Calls `function` with each batch of both lists.
  template <typename Function>
  void ForEach(Function function) {
    for (PulledBatch& batch : queue_) function(batch);
    for (PulledBatch& batch : named_) function(batch);
  }
  // Batches that are asked for and have no state yet.
  std::size_t without_state() const;
  void PopFront() { queue_.pop_front(); }
  // Takes the last batch out of the queue; AskNext will name it again.
  PulledBatch TakeBack();
  // The named one of this name, in whatever phase, or null.
  PulledBatch* FindNamed(const BatchName& name);
  // Takes out one that will not be handed out, wherever it stands.
  PulledBatch Remove(const PulledBatch* batch);
  void Clear();

 private:
  // Returns the batch of either list that `is_it` is true of, or null.
  template <typename Condition>
  PulledBatch* Find(Condition is_it);

  Range range_;
  StepCursor next_;  // of AskNext
  std::list<PulledBatch> queue_;
  std::list<PulledBatch> named_;
};

inline bool SameName(const BatchName& a, const BatchName& b) {
  return a.epoch == b.epoch && a.step == b.step && a.micro_size == b.micro_size &&
         a.micro_index == b.micro_index;
}

}  // namespace forebay::internal
