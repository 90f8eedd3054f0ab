// A schedule is a function from a stage's place to the order of its passes, and a line in the
// table below. Both that there are differ only in how many micro-batches a stage runs ahead before
// it alternates. The plan builder writes a stage's instructions in this order, and the memory that
// a stage needs follows from it.
#include "trainer/schedule/pipeline_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace forebay::train {
namespace {

// Passes forward over `ahead` micro-batches, then alternates between forward and backward, and ends
// with the backward passes that are left.
std::vector<StagePass> WarmUpThenAlternate(std::uint32_t ahead, std::uint32_t micro_batches) {
  std::vector<StagePass> passes;
  for (std::uint32_t index = 0; index < micro_batches + ahead; ++index) {
    if (index < micro_batches) passes.push_back({.index = index, .backward = false});
    if (index >= ahead) passes.push_back({.index = index - ahead, .backward = true});
  }
  return passes;
}

// One forward, one backward after a warm-up (Narayanan et al., "PipeDream", 2019, with a flush at
// the end of the step): a stage runs ahead by as many micro-batches as there are stages behind it.
std::vector<StagePass> OneForwardOneBackward(const StageShare& share) {
  return WarmUpThenAlternate(std::min(share.micro_batches, share.stages - 1 - share.stage),
                             share.micro_batches);
}

// All forward, then all backward (Huang et al., "GPipe", 2019).
std::vector<StagePass> AllForwardFirst(const StageShare& share) {
  return WarmUpThenAlternate(share.micro_batches, share.micro_batches);
}

constexpr std::array kSchedules = {
    PipelineSchedule{.name = "1f1b", .order = &OneForwardOneBackward},
    PipelineSchedule{.name = "gpipe", .order = &AllForwardFirst},
};

}  // namespace

std::span<const PipelineSchedule> PipelineSchedules() { return kSchedules; }

Result<const PipelineSchedule*> FindPipelineSchedule(std::string_view name) {
  const auto* const found = std::ranges::find(kSchedules, name, &PipelineSchedule::name);
  if (found != kSchedules.end()) return found;
  std::vector<std::string_view> names;
  for (const PipelineSchedule& schedule : kSchedules) names.push_back(schedule.name);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("unknown schedule \"{}\": {}", name, fmt::join(names, " or ")));
}

std::uint32_t MicroBatchesHeld(const PipelineSchedule& schedule, const StageShare& share) {
  // What a forward pass has saved is held until the backward pass of its micro-batch.
  std::uint32_t held = 0;
  std::uint32_t most = 0;
  for (const StagePass& pass : schedule.order(share)) {
    held = pass.backward ? held - 1 : held + 1;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace forebay::train
