// One decision for each layout of a run: what of a training step is swapped, recomputed or kept.
// The search itself is in schedule/memory; here is what the user asked for, and what is remembered,
// so that evaluations and switches back find the same choice.
#include "trainer/core/config/memory_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

#include "trainer/core/config/layout_plan.h"
#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/memory/memory_planner.h"

namespace forebay::train {
namespace {

// Larger than any node's memory. Sums of a few such numbers stay within 64 bits.
constexpr std::uint64_t kBytesMax = 1ULL << 50;

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<Unit, 9> kUnits = {{{"", 1},
                                         {"KB", 1'000},
                                         {"MB", 1'000'000},
                                         {"GB", 1'000'000'000},
                                         {"TB", 1'000'000'000'000},
                                         {"KiB", 1ULL << 10},
                                         {"MiB", 1ULL << 20},
                                         {"GiB", 1ULL << 30},
                                         {"TiB", 1ULL << 40}}};

// With three digits behind the point, so that small models show a difference, too.
std::string Megabytes(std::uint64_t bytes) {
  return fmt::format("{:.3f} MB", static_cast<double>(bytes) * 1e-6);
}

// A budget holds for each rank, so the rank with the most decides.
std::uint64_t Peak(const std::vector<std::uint64_t>& by_rank) {
  return *std::ranges::max_element(by_rank);
}

// The cut of a plan, as StageSplit has it.
std::vector<std::uint32_t> BeginsOf(const StepPlan& plan) {
  std::vector<std::uint32_t> begins;
  for (const StageCost& stage : plan.stages.stages) begins.push_back(stage.first_module);
  return begins;
}

// Names the least that would do, so that the user need not try.
Error HostTooSmall(const StepPlan& plan, std::uint64_t host_bytes, std::uint64_t needed) {
  return Error(ErrorCode::kResourceExhausted,
               fmt::format("memory.host_bytes = {}: layout {} swaps out up to {} bytes a rank at "
                           "once",
                           host_bytes, ToString(plan.layout), needed));
}

}  // namespace

Result<std::uint64_t> ParseBytes(std::string_view key, std::string_view text) {
  // Whole numbers only; 1536MiB says what 1.5GiB would.
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  // from_chars stops at the first character that is no digit.
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  const auto* const unit = std::ranges::find(kUnits, suffix, &Unit::name);
  if (error == std::errc() && unit != kUnits.end() && count <= kBytesMax / unit->bytes) {
    return count * unit->bytes;
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} = \"{}\": must be bytes up to 2^50, such as 8GiB or 200MB", key,
                           text));
}

// "keep" leaves both means off: then a budget is only a check.
Result<MemorySettings> ParseMemory(const MemoryConfig& config) {
  MemorySettings settings;
  FOREBAY_ASSIGN(settings.budget_bytes, ParseBytes("memory.budget", config.budget));
  FOREBAY_ASSIGN(settings.host_bytes, ParseBytes("memory.host_bytes", config.host_bytes));
  settings.may_swap = config.policy == "auto" || config.policy == "swap";
  settings.may_recompute = config.policy == "auto" || config.policy == "recompute";
  return settings;
}

Result<StepKeeping> MemoryChoices::Choose(const StepPlan& plan) {
  const std::vector<std::uint32_t> begins = BeginsOf(plan);
  // A plan of the same layout and cut has the same costs: the search need not be repeated.
  const auto known = std::ranges::find_if(chosen_, [&](const Chosen& chosen) {
    return chosen.layout == plan.layout && chosen.begins == begins;
  });
  if (known != chosen_.end()) return known->keeping;
  Result<StepKeeping> keeping = Decide(plan);
  if (!keeping.has_value()) return keeping.error();
  // A plan that does not fit is not remembered: its error ends the run, or the next cut is tried.
  chosen_.push_back({.layout = plan.layout, .begins = begins, .keeping = *keeping});
  return keeping;
}

// The cuts come in the order of their step times. The first one that fits into the budget is
// taken; if none does, the error of the last one, which needs least memory, is returned.
Result<StageSplit> MemoryChoices::ChooseSplit(
    const std::vector<StageSplit>& splits,
    const std::function<Result<StepPlan>(const StageSplit& split)>& plan_of) {
  for (std::size_t at = 0; at < splits.size(); ++at) {
    FOREBAY_ASSIGN(const StepPlan plan, plan_of(splits[at]));
    const Result<StepKeeping> keeping = Choose(plan);
    if (keeping.has_value()) return splits[at];
    const bool too_small = keeping.error().code() == ErrorCode::kResourceExhausted;
    if (!too_small || at + 1 == splits.size()) return keeping.error();
  }
  return Error(ErrorCode::kInternal, "there is no cut to choose from");
}

// Under "auto" a LibTorch that cannot swap recomputes instead.
Result<StepKeeping> MemoryChoices::Decide(const StepPlan& plan) {
  if (settings_.may_swap && !settings_.may_recompute && !can_swap_) {
    return Error(ErrorCode::kUnimplemented,
                 "memory.policy = \"swap\": this LibTorch does not tell what autograd saves; "
                 "memory.policy = \"recompute\" works");
  }
  return settings_.budget_bytes > 0 ? UnderBudget(plan) : Everything(plan);
}

void MemoryChoices::Note(const StepPlan& plan, std::string_view reason) {
  reasons_ += fmt::format("{}memory, layout {}: {}", reasons_.empty() ? "" : "\n",
                          ToString(plan.layout), reason);
}

Result<StepKeeping> MemoryChoices::UnderBudget(const StepPlan& plan) {
  MemoryRequest request{.plan = plan,
                        .costs = costs_,
                        .budget_bytes = settings_.budget_bytes,
                        .host_budget_bytes = settings_.host_bytes,
                        .may_swap = settings_.may_swap && can_swap_,
                        .may_recompute = settings_.may_recompute};
  Result<MemoryChoice> choice = PlanMemory(request);
  if (!choice.has_value()) {
    if (choice.error().code() != ErrorCode::kResourceExhausted) return choice.error();
    // With more room on the host it may do: then that is what is wanting.
    request.host_budget_bytes = 0;
    const Result<MemoryChoice> roomy = PlanMemory(request);
    if (roomy.has_value()) {
      return HostTooSmall(plan, settings_.host_bytes, Peak(roomy->facts.peak_host_bytes));
    }
    return roomy.error().WithContext(
        fmt::format("memory.budget, layout {}", ToString(plan.layout)));
  }
  Note(plan, choice->reason);
  return std::move(choice->keeping);
}

// All that the policy names, whether it is needed or not.
Result<StepKeeping> MemoryChoices::Everything(const StepPlan& plan) {
  ModuleKeeping wanted;
  // Under "auto" without a budget nothing is wanted, and this function is not called.
  if (settings_.may_swap) wanted = {.graph = Keeping::kSwap, .output = Keeping::kSwap};
  if (settings_.may_recompute) wanted = {.graph = Keeping::kRecompute};
  StepKeeping keeping = KeepAll(plan, wanted);
  // The printed line compares the peak with the one of a plan that keeps everything.
  FOREBAY_ASSIGN(const PlanFacts kept, CheckPlan(plan, {}));
  FOREBAY_ASSIGN(const StepPlan moved, MoveSaved(plan, keeping));
  FOREBAY_ASSIGN(const PlanFacts facts, CheckPlan(moved, {}));
  if (Peak(facts.peak_host_bytes) > settings_.host_bytes) {
    return HostTooSmall(plan, settings_.host_bytes, Peak(facts.peak_host_bytes));
  }
  Note(plan,
       fmt::format("all that is saved is {}; peak {} instead of {}",
                   settings_.may_swap ? "swapped to the host" : "computed again",
                   Megabytes(Peak(facts.peak_bytes)), Megabytes(Peak(kept.peak_bytes))));
  return keeping;
}

}  // namespace forebay::train
