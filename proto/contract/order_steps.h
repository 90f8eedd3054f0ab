// StepPlan: which positions of an epoch each step, rank and micro-batch consumes
// (docs/order.md, section 5). The order itself does not know about steps or ranks.
#pragma once

#include <cstdint>

#include "proto/contract/ids.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"

namespace forebay {

// `count` consecutive positions, the first of which is `first`. Positions at or beyond
// StepPlan::sample_count are padding; StepPlan::Resolve tells which sample they repeat.
struct StepSlice {
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  bool operator==(const StepSlice&) const = default;
};

// The position in [0, n) whose sample is delivered, and whether it is a repetition.
struct ResolvedPosition {
  Position position;
  bool padded = false;
};

struct StepPlanOptions {
  std::uint64_t sample_count = 0;   // n: [1, limits::kSampleCountMax]
  std::uint64_t global_batch = 0;   // B, samples per step over all ranks
  std::uint64_t ranks = 1;          // R, divides B
  TailPolicy tail = TailPolicy::kDrop;
};

// A micro-batch is named by (step, index, size): the size divides B, the index is in
// [0, B / size). Rank r's slice is the micro-batch of size B / R with index r.
struct MicroBatch {
  StepId step;
  std::uint64_t index = 0;
  std::uint64_t samples = 0;
};

// Immutable value, thread-safe, allocates nothing.
class StepPlan {
 public:
  // kOutOfRange: n, B (at most limits::kGlobalBatchMax) or R outside its bounds;
  // kInvalidArgument: R does not divide B, or an unknown tail policy.
  static Result<StepPlan> Create(const StepPlanOptions& options);

  std::uint64_t sample_count() const { return options_.sample_count; }
  std::uint64_t global_batch() const { return options_.global_batch; }
  std::uint64_t ranks() const { return options_.ranks; }
  TailPolicy tail() const { return options_.tail; }

  // The steps of an epoch, equal on every rank: floor(n / B) for kDrop (0 if n < B), and
  // ceil(n / B) for the other policies.
  std::uint64_t steps() const { return steps_; }

  // Per epoch: positions that no step consumes (kDrop), and padded positions (kPad).
  std::uint64_t dropped_samples() const;
  std::uint64_t padded_samples() const;

  // Returns all positions of a step: [gB, gB + m). kOutOfRange if step >= steps().
  Result<StepSlice> Step(StepId step) const;

  // Returns rank `rank`'s share of a step. kOutOfRange for a step or rank that does not exist.
  Result<StepSlice> RankSlice(StepId step, std::uint64_t rank) const;

  // Returns a micro-batch's share. kInvalidArgument if the size does not divide B, kOutOfRange
  // for a step or index that does not exist.
  Result<StepSlice> MicroBatchSlice(const MicroBatch& micro_batch) const;

  // Resolves position p of a slice: p itself, or p mod n, flagged as padded, if p >= n.
  ResolvedPosition Resolve(std::uint64_t position) const {
    const std::uint64_t n = options_.sample_count;
    if (position < n) return {Position(position), false};
    return {Position(position % n), true};
  }

  // The step that consumes `position` (< n), or steps() if the tail policy drops it.
  StepId StepOf(Position position) const {
    return StepId(position.value() / options_.global_batch);
  }

 private:
  explicit StepPlan(const StepPlanOptions& options);
  // Cuts a step that exists into `parts` parts, and returns part `index`.
  StepSlice Part(StepId step, std::uint64_t index, std::uint64_t parts) const;

  StepPlanOptions options_;
  std::uint64_t steps_;
};

}  // namespace forebay
