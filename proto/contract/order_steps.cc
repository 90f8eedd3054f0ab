// The arithmetic of steps. One function, Part, cuts a step for ranks, for micro-batches and for
// short tails, so that all of them agree about the boundaries. Limits keep every product below
// 2^63.
#include "proto/contract/order_steps.h"

#include <algorithm>
#include <string>

#include "proto/contract/limits.h"

namespace forebay {
namespace {

Status CheckBound(const char* field, std::uint64_t value, std::uint64_t low,
                  std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return Error(ErrorCode::kOutOfRange, std::string("StepPlan.") + field + " is " +
                                           std::to_string(value) + ", outside [" +
                                           std::to_string(low) + ", " +
                                           std::to_string(high) + "]");
}

Status CheckDivides(const char* field, std::uint64_t value, std::uint64_t global_batch) {
  if (global_batch % value == 0) return {};
  return Error(ErrorCode::kInvalidArgument,
               std::string("StepPlan.") + field + " " + std::to_string(value) +
                   " does not divide the global batch " + std::to_string(global_batch));
}

}  // namespace

Result<StepPlan> StepPlan::Create(const StepPlanOptions& options) {
  FOREBAY_TRY(CheckBound("sample_count", options.sample_count, 1, limits::kSampleCountMax));
  FOREBAY_TRY(CheckBound("global_batch", options.global_batch, 1, limits::kGlobalBatchMax));
  // Every rank gets at least one sample of a full step, and all get equally many.
  FOREBAY_TRY(CheckBound("ranks", options.ranks, 1, options.global_batch));
  FOREBAY_TRY(CheckDivides("ranks", options.ranks, options.global_batch));
  if (TailPolicyName(options.tail) == "unknown") {
    return Error(ErrorCode::kInvalidArgument,
                 "StepPlan.tail is the unknown number " +
                     std::to_string(static_cast<unsigned>(options.tail)));
  }
  return StepPlan(options);
}

StepPlan::StepPlan(const StepPlanOptions& options)
    : options_(options), steps_(options.sample_count / options.global_batch) {
  const bool has_tail = options.sample_count % options.global_batch != 0;
  if (has_tail && options.tail != TailPolicy::kDrop) ++steps_;  // the padded or short step
}

std::uint64_t StepPlan::dropped_samples() const {
  return options_.tail == TailPolicy::kDrop ? options_.sample_count % options_.global_batch : 0;
}

std::uint64_t StepPlan::padded_samples() const {
  if (options_.tail != TailPolicy::kPad) return 0;
  return steps_ * options_.global_batch - options_.sample_count;
}

// Part i is [samples * i / parts, samples * (i + 1) / parts): the parts cover the step without
// gaps, and their sizes differ by one at most, also in a short step that `parts` does not divide.
StepSlice StepPlan::Part(StepId step, std::uint64_t index, std::uint64_t parts) const {
  const std::uint64_t first = step.value() * options_.global_batch;
  std::uint64_t samples = options_.global_batch;
  // With kPad the last step keeps its full size: its positions beyond n are resolved to
  // repetitions.
  if (options_.tail == TailPolicy::kShort) {
    samples = std::min(samples, options_.sample_count - first);
  }
  const std::uint64_t begin = samples * index / parts;
  const std::uint64_t end = samples * (index + 1) / parts;
  return {first + begin, end - begin};
}

Result<StepSlice> StepPlan::Step(StepId step) const {
  if (step.value() >= steps_) {
    return Error(ErrorCode::kOutOfRange,
                 "step " + std::to_string(step.value()) + " does not exist: an epoch has " +
                     std::to_string(steps_) + " steps, counted from 0");
  }
  return Part(step, 0, 1);
}

Result<StepSlice> StepPlan::RankSlice(StepId step, std::uint64_t rank) const {
  FOREBAY_TRY(Step(step));
  FOREBAY_TRY(CheckBound("rank", rank, 0, options_.ranks - 1));
  return Part(step, rank, options_.ranks);
}

Result<StepSlice> StepPlan::MicroBatchSlice(const MicroBatch& micro_batch) const {
  FOREBAY_TRY(Step(micro_batch.step));
  FOREBAY_TRY(CheckBound("micro_batch", micro_batch.samples, 1, options_.global_batch));
  FOREBAY_TRY(CheckDivides("micro_batch", micro_batch.samples, options_.global_batch));
  const std::uint64_t parts = options_.global_batch / micro_batch.samples;
  FOREBAY_TRY(CheckBound("micro_batch_index", micro_batch.index, 0, parts - 1));
  return Part(micro_batch.step, micro_batch.index, parts);
}

}  // namespace forebay
