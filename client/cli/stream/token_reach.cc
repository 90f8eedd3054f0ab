// Jobs have thousands of ranks, so nothing here goes through all ranks for each opening. What one
// opening changes for other ranks is a single step: how far all ranks of some number come together.
#include "client/cli/stream/token_reach.h"

#include <algorithm>

namespace forebay::cli {

TokenReach::TokenReach(std::span<const OpeningPlace> openings)
    : openings_(openings), is_led_to_(openings.size()) {
  for (std::size_t i = 0; i < openings.size(); ++i) {
    by_number_[openings[i].ranks][openings[i].rank].push_back(i);
  }
  const StepKey together = Together({});
  for (const auto& [number, ranks] : by_number_) {
    for (const auto& [rank, rank_openings] : ranks) {
      for (const std::size_t i : Follow(rank_openings, together).begun) is_led_to_[i] = true;
    }
  }
}

TokenReach::Progress TokenReach::Follow(const RankOpenings& rank, const StepKey& together,
                                        std::optional<std::size_t> without) const {
  Progress progress = {.reached = together, .begun = {}};
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    std::set<std::size_t> waiting;  // logs whose next opening cannot begin yet
    for (const std::size_t i : rank) {
      const OpeningPlace& opening = openings_[i];
      if (progress.begun.count(i) != 0 || waiting.count(opening.log) != 0) continue;
      if (i == without || opening.first > progress.reached) {
        waiting.insert(opening.log);
        continue;
      }
      progress.begun.insert(i);
      // Only what leads further can let others begin that were passed over.
      goes_on = goes_on || opening.reached > progress.reached;
      progress.reached = std::max(progress.reached, opening.reached);
    }
  }
  return progress;
}

StepKey TokenReach::Together(std::optional<std::size_t> without) {
  StepKey together;
  if (by_number_.size() == 1) return together;
  for (;;) {
    StepKey further = together;
    for (const auto& [number, reached] : ReachedByNumber(together)) {
      StepKey of_number = reached;
      if (without.has_value() && openings_[*without].ranks == number) {
        const RankOpenings& rank = by_number_.at(number).at(openings_[*without].rank);
        of_number = std::min(of_number, Follow(rank, together, without).reached);
      }
      further = std::max(further, of_number);
    }
    if (further == together) return together;
    together = further;
  }
}

const std::map<std::uint64_t, StepKey>& TokenReach::ReachedByNumber(const StepKey& together) {
  const auto [entry, is_new] = reached_by_number_.try_emplace(together);
  if (!is_new) return entry->second;
  for (const auto& [number, ranks] : by_number_) {
    // A number of ranks has come as far as each rank has of which there are logs.
    std::optional<StepKey> least;
    for (const auto& [rank, rank_openings] : ranks) {
      const StepKey reached = Follow(rank_openings, together).reached;
      least = std::min(least.value_or(reached), reached);
    }
    entry->second[number] = *least;
  }
  return entry->second;
}

}  // namespace forebay::cli
