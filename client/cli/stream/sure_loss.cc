// The opening of a rank that came last counts as a whole: from its first step on it took back what
// the others had delivered. So it has all steps from there on, or steps are missing. In front of it
// counts another opening that began earlier, as far as the first step of the last one, and so on
// back to the start of the stream. If no such chain leads to the start, the rank has lost steps in
// every order.
#include "client/cli/stream/sure_loss.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace forebay::cli {
namespace {

// Tells which steps a rank has to have.
class StepsToDeliver {
 public:
  StepsToDeliver(std::span<const CountedDelivery> openings, const StepPlan& plan, StepKey end)
      : plan_(plan), end_(end) {
    for (const CountedDelivery& opening : openings) {
      for (const LoggedBatch& batch : opening.batches) Add(opening, batch);
    }
  }

  // Returns the first step from `from` on that the rank must have and that is not one of
  // `delivered`; behind every step if there is none.
  StepKey FirstGap(const LosingRank& rank, StepKey from, const std::set<StepKey>& delivered) const {
    auto next = delivered.lower_bound(from);
    for (StepKey step = from; step < end_; step = After(step)) {
      const bool is_delivered = next != delivered.end() && *next == step;
      if (is_delivered) ++next;
      if (!is_delivered && MustBeDelivered(rank, step)) return step;
    }
    return kBehindEveryStep;
  }

 private:
  static constexpr std::uint64_t kAnyRanks = 0;

  void Add(const CountedDelivery& opening, const LoggedBatch& batch) {
    const StepKey step = {batch.epoch, batch.step};
    if (step >= opening.end) return;
    const std::uint64_t ranks = opening.place.ranks;
    const auto [delivered, is_new] = delivered_to_.try_emplace(step, ranks);
    // A program may pull any part of a step by name, also in front of where its stream began.
    const bool is_share = step >= opening.place.first &&
                          ShareOf({ranks, opening.place.rank}, step.second) ==
                              StepSlice{batch.first, batch.count};
    if (!is_share || delivered->second != ranks) delivered->second = kAnyRanks;
  }

  bool MustBeDelivered(const LosingRank& rank, const StepKey& step) const {
    const auto delivered = delivered_to_.find(step);
    if (delivered != delivered_to_.end() && delivered->second != rank.ranks) return false;
    return ShareOf(rank, step.second).count != 0;
  }

  StepSlice ShareOf(const LosingRank& rank, std::uint64_t step) const {
    // Headers and batches are checked when they are read, so step and share exist.
    return *plan_.MicroBatchSlice({.step = StepId(step),
                                   .index = rank.rank,
                                   .samples = plan_.global_batch() / rank.ranks});
  }

  StepKey After(const StepKey& step) const {
    return step.second + 1 < plan_.steps() ? StepKey{step.first, step.second + 1}
                                           : StepKey{step.first + 1, 0};
  }

  const StepPlan& plan_;
  const StepKey end_;
  // The number of ranks that a step was delivered to in shares, or kAnyRanks.
  std::map<StepKey, std::uint64_t> delivered_to_;
};

using DeliveriesOfRank = std::vector<const CountedDelivery*>;

bool MayHaveAll(const LosingRank& rank, DeliveriesOfRank openings, const StepsToDeliver& steps,
                const StepKey& start) {
  std::ranges::sort(openings, [](const CountedDelivery* a, const CountedDelivery* b) {
    return a->place.first > b->place.first;
  });
  // Steps from which on a chain of openings has all.
  std::set<StepKey> all_from = {kBehindEveryStep};
  for (const CountedDelivery* opening : openings) {
    std::set<StepKey> delivered;
    for (const LoggedBatch& batch : opening->batches) {
      const StepKey step = {batch.epoch, batch.step};
      if (step < opening->end) delivered.insert(step);
    }
    const StepKey& first = opening->place.first;
    // Those that begin later have been looked at.
    if (*all_from.upper_bound(first) <= steps.FirstGap(rank, first, delivered)) {
      all_from.insert(first);
    }
  }
  return *all_from.begin() <= steps.FirstGap(rank, start, {});
}

}  // namespace

std::optional<LosingRank> FindSureLoss(std::span<const CountedDelivery> openings,
                                       const StepPlan& plan, StepKey start, StepKey end) {
  if (plan.steps() == 0) return std::nullopt;
  std::map<std::pair<std::uint64_t, std::uint64_t>, DeliveriesOfRank> by_rank;
  for (const CountedDelivery& opening : openings) {
    by_rank[{opening.place.ranks, opening.place.rank}].push_back(&opening);
  }
  const StepsToDeliver steps(openings, plan, end);
  for (const auto& [key, of_rank] : by_rank) {
    const LosingRank rank = {.ranks = key.first, .rank = key.second};
    if (!MayHaveAll(rank, of_rank, steps, start)) return rank;
  }
  return std::nullopt;
}

}  // namespace forebay::cli
