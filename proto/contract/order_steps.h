// StepPlan: which positions of an epoch each step, rank and micro-batch consumes
// (docs/order.md, section 5). The order itself does not know about steps or ranks.
#pragma once

#include <cstdint>

#include "proto/contract/ids.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"

namespace forebay {

// `count` consecutive positions from `first` on. Positions from StepPlan::sample_count on are
// padding; StepPlan::Resolve says which sample stands there.
struct StepSlice {
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  bool operator==(const StepSlice&) const = default;
};

// The position in [0, n) whose sample is handed out, and whether it is a repeat.
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

  // Steps of an epoch, the same on every rank: floor(n / B) for kDrop (0 where n < B), else
  // ceil(n / B).
  std::uint64_t steps() const { return steps_; }

  // Positions that no step consumes (kDrop), and padded ones (kPad), per epoch.
  std::uint64_t dropped_samples() const;
  std::uint64_t padded_samples() const;

  // All positions of a step: [gB, gB + m). kOutOfRange where step >= steps().
  Result<StepSlice> Step(StepId step) const;

  // Rank `rank`'s share of it. kOutOfRange for a step or rank that does not exist.
  Result<StepSlice> RankSlice(StepId step, std::uint64_t rank) const;

  // A micro-batch's share. kInvalidArgument where the size does not divide B, kOutOfRange
  // for a step or index that does not exist.
  Result<StepSlice> MicroBatchSlice(const MicroBatch& micro_batch) const;

  // Position p of a slice: p itself, or p mod n, flagged, where p >= n.
  ResolvedPosition Resolve(std::uint64_t position) const {
    const std::uint64_t n = options_.sample_count;
    if (position < n) return {Position(position), false};
    return {Position(position % n), true};
  }

  // The step that consumes `position` (< n); steps() where the tail policy drops it.
  StepId StepOf(Position position) const {
    return StepId(position.value() / options_.global_batch);
  }

 private:
  explicit StepPlan(const StepPlanOptions& options);
  // Part `index` of `parts` of a step that exists.
  StepSlice Part(StepId step, std::uint64_t index, std::uint64_t parts) const;

  StepPlanOptions options_;
  std::uint64_t steps_;
};

}  // namespace forebay
