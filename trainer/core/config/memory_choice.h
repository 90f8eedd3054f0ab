// MemoryChoices: which values that are saved for the backward pass are kept, swapped to the host,
// or recomputed. From section [memory] of the configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"
#include "trainer/schedule/memory/memory_plan.h"
#include "trainer/schedule/model_graph.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

struct MemorySettings {
  std::uint64_t budget_bytes = 0;  // of tensors on each rank; 0: none
  std::uint64_t host_bytes = 0;    // of each rank, for what is swapped
  bool may_swap = true;
  bool may_recompute = true;

  // Whether plans are rewritten at all; otherwise everything is kept.
  bool active() const { return budget_bytes > 0 || may_swap != may_recompute; }
};

// "8GiB", "200MB", "64KiB" or plain bytes. kInvalidArgument names the key.
Result<std::uint64_t> ParseBytes(std::string_view key, std::string_view text);

// kInvalidArgument names the key and what it takes.
Result<MemorySettings> ParseMemory(const MemoryConfig& config);

// Chooses once for each layout. The inputs are the same on every rank, so that all choose alike.
// Not thread-safe.
class MemoryChoices {
 public:
  // `can_swap`: whether the engine is able to swap.
  MemoryChoices(const MemorySettings& settings, const SimulationCosts& costs, bool can_swap)
      : settings_(settings), costs_(costs), can_swap_(can_swap) {}

  // Chooses for a training plan that BuildPlan made. kResourceExhausted if memory.budget or
  // memory.host_bytes is too small; the message names the smallest that would do.
  Result<StepKeeping> Choose(const StepPlan& plan);

  // Returns the first of `splits`, of which there is at least one, whose plan meets the budget.
  // `plan_of` makes the plan of a split. If none meets it, returns the error of the last one.
  Result<StageSplit> ChooseSplit(
      const std::vector<StageSplit>& splits,
      const std::function<Result<StepPlan>(const StageSplit& split)>& plan_of);

  std::uint64_t budget_bytes() const { return settings_.budget_bytes; }

  // What was chosen since the last call, layout by layout, as text for people.
  std::string TakeReasons() { return std::exchange(reasons_, {}); }

 private:
  struct Chosen {
    Layout layout;
    std::vector<std::uint32_t> begins;  // of the stages
    StepKeeping keeping;
  };

  Result<StepKeeping> Decide(const StepPlan& plan);
  Result<StepKeeping> UnderBudget(const StepPlan& plan);
  Result<StepKeeping> Everything(const StepPlan& plan);
  void Note(const StepPlan& plan, std::string_view reason);

  MemorySettings settings_;
  SimulationCosts costs_;
  bool can_swap_;
  std::vector<Chosen> chosen_;
  std::string reasons_;
};

}  // namespace forebay::train
