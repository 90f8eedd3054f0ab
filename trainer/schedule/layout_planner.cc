#include "trainer/schedule/layout_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace forebay::train {
namespace {

std::string LayoutName(const Layout& layout, Schedule schedule) {
  return fmt::format("{} replicas x {} stages, {}", layout.replicas, layout.stages,
                     ScheduleName(schedule));
}

double Share(std::uint64_t part_ns, std::uint64_t whole_ns) {
  return whole_ns == 0 ? 0.0
                       : 100.0 * static_cast<double>(part_ns) / static_cast<double>(whole_ns);
}

std::string ReasonOf(const PlannerRequest& request, const LayoutChoice& choice,
                     const SplitChoice& cut) {
  const std::uint32_t stage = cut.slowest_stage;
  const std::uint32_t begin = choice.split.begins[stage];
  const std::uint32_t end = stage + 1 < choice.split.stages()
                                ? choice.split.begins[stage + 1]
                                : static_cast<std::uint32_t>(request.graph.modules.size());
  RankTimes longest;
  for (const RankTimes& times : choice.simulation.ranks) {
    longest.wait_message_ns = std::max(longest.wait_message_ns, times.wait_message_ns);
    longest.wait_collective_ns = std::max(longest.wait_collective_ns, times.wait_collective_ns);
  }
  const std::uint64_t step_ns = choice.simulation.step_ns;
  const std::uint64_t peak = *std::ranges::max_element(choice.facts.peak_bytes);
  return fmt::format(
      "{:.2f} ms a step, bubble {:.1f} %; slowest stage {} ({}..{}) {:.2f} ms a micro-batch; "
      "waits for messages up to {:.1f} %, for reductions {:.1f} %; peak {:.1f} MB{}",
      static_cast<double>(step_ns) * 1e-6, 100.0 * choice.simulation.bubble, stage,
      request.graph.modules[begin].name, request.graph.modules[end - 1].name,
      static_cast<double>(cut.slowest_ns) * 1e-6, Share(longest.wait_message_ns, step_ns),
      Share(longest.wait_collective_ns, step_ns), static_cast<double>(peak) * 1e-6,
      request.budget_bytes == 0
          ? std::string()
          : fmt::format(" of {:.1f}", static_cast<double>(request.budget_bytes) * 1e-6));
}

SplitCosts SplitCostsOf(const PlannerRequest& request, const Layout& layout, Schedule schedule) {
  const std::uint32_t share = request.micro_batches / layout.replicas;
  SplitCosts costs;
  costs.message_ns = request.costs.call_ns;
  costs.message_ns_per_byte = request.costs.copy_ns_per_byte;
  costs.budget_bytes = request.budget_bytes;
  costs.parameter_copies = ParameterCopies(request.optimiser_states, share);
  costs.micro_batches = share;
  costs.replicas = layout.replicas;
  costs.holds_all = schedule == Schedule::kGpipe;
  return costs;
}

}  // namespace

Result<LayoutChoice> PlanOneLayout(const PlannerRequest& request, const Layout& layout,
                                   Schedule schedule) {
  if (layout.replicas == 0 || layout.replicas > request.micro_batches) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} replicas share {} micro-batches: at least one for each",
                             layout.replicas, request.micro_batches));
  }
  FOREBAY_ASSIGN(const SplitChoice cut, FindSplit(request.graph, layout.stages,
                                                  SplitCostsOf(request, layout, schedule)));
  LayoutChoice choice;
  choice.layout = layout;
  choice.schedule = schedule;
  choice.split = cut.split;
  PlanRequest wanted;
  FOREBAY_ASSIGN(wanted.stages, CutIntoStages(request.graph, cut.split));
  wanted.layout = layout;
  wanted.micro_batches = request.micro_batches;
  wanted.schedule = schedule;
  wanted.optimiser_states = request.optimiser_states;
  wanted.bucket_bytes = request.bucket_bytes;
  wanted.clips = request.clips;
  FOREBAY_ASSIGN(choice.plan, BuildPlan(wanted));
  FOREBAY_ASSIGN(choice.facts,
                 CheckPlan(choice.plan, {.budget_bytes = request.budget_bytes}));
  FOREBAY_ASSIGN(choice.simulation, SimulatePlan(choice.plan, request.costs));
  choice.reason = ReasonOf(request, choice, cut);
  return choice;
}

Result<LayoutRanking> PlanLayouts(const PlannerRequest& request) {
  FOREBAY_TRY(CheckGraph(request.graph));
  if (request.ranks == 0 || request.schedules.empty()) {
    return Error(ErrorCode::kInvalidArgument, "a search needs ranks and schedules");
  }
  LayoutRanking found;
  for (std::uint32_t stages = 1; stages <= request.ranks; ++stages) {
    if (request.ranks % stages != 0) continue;
    const Layout layout{.replicas = request.ranks / stages, .stages = stages};
    for (const Schedule schedule : request.schedules) {
      // Without stages there is nothing to schedule: the first one stands for all.
      if (stages == 1 && schedule != request.schedules.front()) continue;
      Result<LayoutChoice> choice = PlanOneLayout(request, layout, schedule);
      if (choice.has_value()) {
        found.choices.push_back(*std::move(choice));
      } else {
        found.refused.push_back(
            fmt::format("{}: {}", LayoutName(layout, schedule), choice.error().message()));
      }
    }
  }
  if (found.choices.empty()) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("no layout of {} ranks is possible: {}", request.ranks,
                             fmt::join(found.refused, "; ")));
  }
  std::ranges::stable_sort(found.choices, {}, [](const LayoutChoice& choice) {
    return std::pair(choice.simulation.step_ns, choice.simulation.PeakBytes());
  });
  return found;
}

std::string ToText(const LayoutRanking& plan, std::size_t count) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (std::size_t at = 0; at < std::min(count, plan.choices.size()); ++at) {
    const LayoutChoice& choice = plan.choices[at];
    fmt::format_to(out, "{}. {}, cut at {}: {}\n", at + 1,
                   LayoutName(choice.layout, choice.schedule),
                   fmt::join(choice.split.begins, " "), choice.reason);
  }
  for (const std::string& line : plan.refused) fmt::format_to(out, "   not {}\n", line);
  return text;
}

}  // namespace forebay::train
