// Sorted by position, one pass over the batches finds gaps and overlaps, and memory follows the
// number of batches, not of samples.
#include "client/cli/stream/epoch_judge.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/order_spec.h"

namespace forebay::cli {

EpochJudge::EpochJudge(std::uint64_t epoch, const StepPlan& plan) : plan_(plan) {
  verdict_.epoch = epoch;
  const std::uint64_t handed_out = plan.steps() * plan.global_batch();
  end_ = plan.tail() == TailPolicy::kShort ? std::min(handed_out, plan.sample_count())
                                           : handed_out;
  verdict_.expected = end_;
}

std::uint64_t EpochJudge::OpenStep() {
  Sort();
  const std::uint64_t batch = plan_.global_batch();
  std::uint64_t open = 0;
  std::uint64_t step = 0;
  std::uint64_t filled = 0;  // slices of all ranks together fill a step
  for (const StepSlice& slice : slices_) {
    if (slice.count != 0 && slice.first + slice.count >= end_) return plan_.steps();
    if (slice.first / batch != step) filled = 0;
    step = slice.first / batch;
    filled += slice.count;
    if (filled >= batch) open = step + 1;
  }
  return open;
}

EpochVerdict EpochJudge::Judge(std::uint64_t open_step) {
  Sort();
  std::uint64_t next = 0;
  for (const StepSlice& slice : slices_) {
    // A rank whose share of a short last step is empty logs a batch without samples.
    if (slice.count == 0) continue;
    const std::uint64_t slice_end = slice.first + slice.count;
    if (slice.first > next) AddGap({next, slice.first - next}, open_step);
    if (slice.first < next) {
      // Only the part in front of `next` was consumed before; the rest of the slice is new.
      const std::uint64_t again = std::min(next, slice_end) - slice.first;
      verdict_.duplicates += again;
      Note(fmt::format("positions {} to {} were consumed again", slice.first,
                       slice.first + again - 1));
    }
    if (slice_end > next) verdict_.consumed += slice_end - std::max(next, slice.first);
    next = std::max(next, slice_end);
  }
  if (next < end_) AddGap({next, end_ - next}, open_step);
  return std::move(verdict_);
}

void EpochJudge::Sort() {
  std::sort(slices_.begin(), slices_.end(), [](const StepSlice& a, const StepSlice& b) {
    return std::tie(a.first, a.count) < std::tie(b.first, b.count);
  });
}

// A gap may begin before `open_step` and reach behind it.
void EpochJudge::AddGap(const StepSlice& gap, std::uint64_t open_step) {
  const std::uint64_t open = open_step * plan_.global_batch();
  const std::uint64_t missing = gap.first < open ? std::min(gap.count, open - gap.first) : 0;
  verdict_.unfinished += gap.count - missing;
  verdict_.missing += missing;
  if (missing == 0) return;
  Note(fmt::format("positions {} to {} were not consumed", gap.first, gap.first + missing - 1));
}

void EpochJudge::Note(std::string finding) {
  if (verdict_.findings.size() < kFindingsMax) verdict_.findings.push_back(std::move(finding));
}

}  // namespace forebay::cli
