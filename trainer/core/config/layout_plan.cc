// Section [layout] becomes the list of layouts that a run goes through. The checks are about
// numbers only: that replicas x stages are the ranks of the job, and that the micro-batches divide
// the work so that sums of gradients do not depend on the layout. Each message lists the values
// that would be legal.
#include "trainer/core/config/layout_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "trainer/core/config/number_list.h"

namespace forebay::train {
namespace {

constexpr std::size_t kValuesShownMax = 16;

// A key has a value that is not legal here; says which would be.
Error Bad(std::string_view key, std::string_view value, const std::string& allowed) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} = {}: {}", key, value, allowed));
}

// "2x1": two replicas of one stage.
std::optional<Layout> ParseLayout(std::string_view text) {
  const auto sizes = ParseNumbers<std::uint32_t>(text, 'x');
  if (!sizes || sizes->size() != 2 || std::ranges::find(*sizes, 0U) != sizes->end()) {
    return std::nullopt;
  }
  return Layout{.replicas = sizes->front(), .stages = sizes->back()};
}

// No rank may be left without work. The product is formed in 64 bits, because both numbers are the
// user's.
bool Fills(const Layout& layout, std::uint32_t ranks) {
  return std::uint64_t{layout.replicas} * layout.stages == ranks;
}

// "step 500: 1x2".
std::optional<LayoutSwitch> ParseSwitch(std::string_view entry) {
  const std::vector<std::string_view> parts = SplitText(entry, ':');
  if (parts.size() != 2) return std::nullopt;
  const std::string_view place = parts.front();
  LayoutSwitch parsed{.by_epoch = place.starts_with("epoch ")};
  if (!parsed.by_epoch && !place.starts_with("step ")) return std::nullopt;
  const auto after = ParseNumber<std::uint32_t>(TrimSpaces(place.substr(place.find(' '))));
  const std::optional<Layout> layout = ParseLayout(parts.back());
  // A switch before the first step would only be another first layout.
  if (!after || *after == 0 || !layout) return std::nullopt;
  parsed.after = *after;
  parsed.layout = *layout;
  return parsed;
}

// For messages, at most kValuesShownMax of them.
std::string Divisors(std::uint32_t number) {
  std::vector<std::uint32_t> divisors;
  for (std::uint32_t by = 1; by <= number && divisors.size() < kValuesShownMax; ++by) {
    if (number % by == 0) divisors.push_back(by);
  }
  return fmt::format("{}", fmt::join(divisors, ", "));
}

// The layout at the start: the launcher decides how many ranks there are, and the stages divide
// them.
Result<Layout> FirstLayout(const LayoutConfig& wanted, std::uint32_t ranks) {
  const auto stages = static_cast<std::uint32_t>(wanted.stages);
  if (ranks % stages != 0) {
    return Bad("layout.stages", fmt::format("{}", stages),
               fmt::format("must divide the {} ranks of the job: {}; mpirun -np starts more",
                           ranks, Divisors(ranks)));
  }
  const Layout layout{.replicas = ranks / stages, .stages = stages};
  // The ranks are the launcher's, so replicas can be checked but not chosen.
  if (wanted.replicas != 0 && wanted.replicas != layout.replicas) {
    return Bad("layout.replicas", fmt::format("{}", wanted.replicas),
               fmt::format("must be {}, or 0: {} ranks with layout.stages = {}", layout.replicas,
                           ranks, stages));
  }
  return layout;
}

// Every layout of a run has the same ranks: none are started or ended by a switch.
Result<std::vector<LayoutSwitch>> Switches(const std::string& text, std::uint32_t ranks) {
  std::vector<LayoutSwitch> switches;
  for (const std::string_view entry : SplitText(text, ';')) {
    if (entry.empty()) continue;
    const std::optional<LayoutSwitch> parsed = ParseSwitch(entry);
    if (!parsed) {
      return Bad("layout.switch", fmt::format("\"{}\"", entry),
                 "must be \"step N: RxS\" or \"epoch N: RxS\", N at least 1, R replicas of S "
                 "stages");
    }
    if (!Fills(parsed->layout, ranks)) {
      return Bad("layout.switch", fmt::format("\"{}\"", entry),
                 fmt::format("replicas x stages must be the {} ranks of the job", ranks));
    }
    switches.push_back(*parsed);
  }
  return switches;
}

// The first part of each stage; empty for "auto". How many parts the model has is not known here,
// and is checked when the plan is built.
Result<std::vector<std::uint32_t>> Split(const std::string& text, const LayoutPlan& plan) {
  std::vector<std::uint32_t> begins;
  if (text == "auto") return begins;
  const auto numbers = ParseNumbers<std::uint32_t>(text, ',');
  const bool ascends =
      numbers && std::ranges::adjacent_find(*numbers, std::greater_equal()) == numbers->end();
  if (!ascends || (!numbers->empty() && numbers->front() != 0)) {
    return Bad("layout.split", fmt::format("\"{}\"", text),
               "must be \"auto\", or the first part of each stage, ascending from 0, such as "
               "\"0,2\"");
  }
  begins = *numbers;
  const std::vector<Layout> layouts = plan.Layouts();
  if (std::ranges::find(layouts, begins.size(), &Layout::stages) == layouts.end()) {
    return Bad("layout.split", fmt::format("\"{}\"", text),
               fmt::format("is for {} stages, which no layout of this run has", begins.size()));
  }
  return begins;
}

// Every replica's share is a whole number of them; with several replicas a power of two, so that
// its sum of gradients is a node of the tree over all.
bool Legal(std::uint32_t micro_batch, std::uint32_t global_batch,
           const std::vector<Layout>& layouts) {
  return std::ranges::all_of(layouts, [&](const Layout& layout) {
    const std::uint32_t share = global_batch / layout.replicas;
    if (share % micro_batch != 0) return false;
    return layout.replicas == 1 || std::has_single_bit(share / micro_batch);
  });
}

// For messages: the largest ones, which users want first.
std::string LegalMicroBatches(std::uint32_t global_batch, const std::vector<Layout>& layouts) {
  std::vector<std::uint32_t> legal;
  for (std::uint32_t size = global_batch; size > 0 && legal.size() < kValuesShownMax; --size) {
    if (global_batch % size == 0 && Legal(size, global_batch, layouts)) legal.push_back(size);
  }
  return fmt::format("{}", fmt::join(legal, ", "));
}

// One size of micro-batches for all layouts of the run, so that a switch does not change the
// arithmetic.
Status ChooseMicroBatch(const TrainConfig& config, LayoutPlan& plan) {
  const auto global_batch = static_cast<std::uint32_t>(config.train.global_batch);
  const std::vector<Layout> layouts = plan.Layouts();
  // The smallest share of a replica over all layouts: a micro-batch of this size fits every one.
  std::uint32_t share = global_batch;
  for (const Layout& layout : layouts) {
    if (global_batch % layout.replicas != 0) {
      return Bad("train.global_batch", fmt::format("{}", global_batch),
                 fmt::format("{} replicas do not divide it; {} do", layout.replicas,
                             Divisors(global_batch)));
    }
    share = std::min(share, global_batch / layout.replicas);
  }
  plan.global_batch = global_batch;
  plan.follows_layout = config.layout.micro_batches == "per_layout";
  std::vector<Layout> bound = layouts;
  // Without stages a replica takes its share at once, so that any size is legal there.
  if (plan.follows_layout) std::erase_if(bound, [](const Layout& one) { return one.stages == 1; });
  const auto wanted = static_cast<std::uint32_t>(config.layout.micro_batch);
  if (wanted == 0 && plan.follows_layout && !bound.empty()) {
    return Bad("layout.micro_batch", "0",
               fmt::format("with layout.micro_batches = \"per_layout\" a pipeline's has to be "
                           "given: {}",
                           LegalMicroBatches(global_batch, bound)));
  }
  plan.micro_batch = wanted == 0 ? share : wanted;
  if (!Legal(plan.micro_batch, global_batch, bound)) {
    return Bad("layout.micro_batch", fmt::format("{}", wanted),
               fmt::format("a replica's share of train.global_batch = {} must be a power of two "
                           "of micro-batches (any number, where there is one replica): {}",
                           global_batch, LegalMicroBatches(global_batch, bound)));
  }
  return {};
}

}  // namespace

std::string ToString(const Layout& layout) {
  return fmt::format("{} x {}", layout.replicas, layout.stages);
}

Layout LayoutPlan::At(const RunPosition& position) const {
  // Follows from the position, so that the plan need not know the data set.
  const std::uint64_t steps_per_epoch =
      position.epoch == 0 ? 0 : (position.global_step - position.step) / position.epoch;
  Layout layout = first;
  std::uint64_t latest = 0;
  for (const LayoutSwitch& change : switches) {
    const std::uint64_t done = change.by_epoch ? position.epoch : position.global_step;
    if (done < change.after) continue;
    const std::uint64_t point =
        change.by_epoch ? change.after * steps_per_epoch : change.after;
    // Of two switches that are both behind us, the later one counts, whatever their order in the
    // text.
    if (point < latest) continue;
    latest = point;
    layout = change.layout;
  }
  return layout;
}

std::vector<Layout> LayoutPlan::Layouts() const {
  std::vector<Layout> layouts = {first};
  for (const LayoutSwitch& change : switches) {
    if (std::ranges::find(layouts, change.layout) == layouts.end()) {
      layouts.push_back(change.layout);
    }
  }
  return layouts;
}

std::uint32_t LayoutPlan::MicroBatchOf(const Layout& layout) const {
  return follows_layout && layout.stages == 1 ? global_batch / layout.replicas : micro_batch;
}

std::string LayoutPlan::Text() const {
  std::string text = fmt::format("{} of {}", ToString(first), MicroBatchOf(first));
  for (const LayoutSwitch& change : switches) {
    text += fmt::format(", {} of {} from {} {}", ToString(change.layout),
                        MicroBatchOf(change.layout), change.by_epoch ? "epoch" : "step",
                        change.after);
  }
  return text;
}

// The keys by which a run gives up that all layouts end in the same weights.
std::string PlanDependence(const TrainConfig& config) {
  std::vector<std::string_view> keys;
  if (config.layout.micro_batches == "per_layout") keys.push_back("layout.micro_batches");
  if (config.train.normalisation == "per_worker") keys.push_back("train.normalisation");
  return fmt::format("{}", fmt::join(keys, ", "));
}

std::string LayoutDependence(const TrainConfig& config) {
  std::string keys = PlanDependence(config);
  // Gradients are summed from left to right within a replica, then over replicas.
  if (config.train.exactness != "fast") return keys;
  return keys.empty() ? "train.exactness" : "train.exactness, " + keys;
}

Result<LayoutPlan> MakeLayoutPlan(const TrainConfig& config, std::uint32_t ranks) {
  LayoutPlan plan;
  FOREBAY_ASSIGN(plan.schedule, FindPipelineSchedule(config.layout.pipeline_schedule));
  FOREBAY_ASSIGN(plan.first, FirstLayout(config.layout, ranks));
  FOREBAY_ASSIGN(plan.switches, Switches(config.layout.switches, ranks));
  FOREBAY_TRY(ChooseMicroBatch(config, plan));
  FOREBAY_ASSIGN(plan.split, Split(config.layout.split, plan));
  return plan;
}

}  // namespace forebay::train
