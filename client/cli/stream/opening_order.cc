// A token says that all batches before it were consumed: by a rank that is restarted alone, its
// own; by a job that is restarted on another number of ranks, those of all ranks. So an opening
// cannot have come before the openings which delivered these batches, whatever the clocks of their
// nodes say.
#include "client/cli/stream/opening_order.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace forebay::cli {
namespace {

// How far each rank has come. Jobs have thousands of ranks, so nothing here goes through all of
// them for each opening.
class Progress {
 public:
  explicit Progress(std::span<const OpeningPlace> openings) {
    // A number of ranks has consumed a step when all ranks have of which there are logs.
    for (const OpeningPlace& opening : openings) {
      Ranks& ranks = by_ranks_[opening.ranks];
      if (ranks.reached.try_emplace(opening.rank).second) ranks.sorted.insert(StepKey());
    }
  }

  // Returns whether all ranks of its number have come further together.
  bool Add(const OpeningPlace& opening) {
    Ranks& ranks = by_ranks_.at(opening.ranks);
    StepKey& reached = ranks.reached.at(opening.rank);
    if (opening.reached <= reached) return false;
    const StepKey all_before = *ranks.sorted.begin();
    ranks.sorted.erase(ranks.sorted.find(reached));
    reached = opening.reached;
    ranks.sorted.insert(reached);
    return *ranks.sorted.begin() > all_before;
  }

  // Whether the batches before `opening` were delivered to ranks that can have written the token of
  // this opening.
  bool LeadsTo(const OpeningPlace& opening) const {
    return std::any_of(by_ranks_.begin(), by_ranks_.end(), [&](const auto& entry) {
      const auto& [number, ranks] = entry;
      const StepKey& reached =
          number == opening.ranks ? ranks.reached.at(opening.rank) : *ranks.sorted.begin();
      return reached >= opening.first;
    });
  }

 private:
  struct Ranks {
    std::map<std::uint64_t, StepKey> reached;  // by rank
    std::multiset<StepKey> sorted;             // the same places
  };
  std::map<std::uint64_t, Ranks> by_ranks_;  // by the number of ranks
};

// The next opening of each log.
class NextOpenings {
 public:
  NextOpenings(std::span<const OpeningPlace> openings, const Progress& progress)
      : openings_(openings), progress_(progress), reach_(openings) {}

  bool empty() const { return ready_.empty() && waiting_.empty(); }

  void Add(std::size_t i) {
    // If the logs do not have what it goes on from, nothing but the clock is left.
    if (progress_.LeadsTo(openings_[i]) || !reach_.IsLedTo(i)) {
      ready_.insert(ByClock(i));
    } else {
      waiting_.emplace(RankOf(i), i);
    }
  }

  // Looks again at those that wait for the rank of opening `i`, or at all.
  void LookAgain(std::size_t i, bool at_all) {
    auto [next, end] = waiting_.equal_range(RankOf(i));
    if (at_all) next = waiting_.begin(), end = waiting_.end();
    while (next != end) {
      const std::size_t waiting = next->second;
      if (!progress_.LeadsTo(openings_[waiting])) {
        ++next;
        continue;
      }
      ready_.insert(ByClock(waiting));
      next = waiting_.erase(next);
    }
  }

  // Takes the earliest out.
  std::size_t Take() {
    if (ready_.empty()) {
      // What tokens say contradicts the files, which somebody has changed.
      const auto earliest = std::min_element(
          waiting_.begin(), waiting_.end(),
          [&](const auto& a, const auto& b) { return ByClock(a.second) < ByClock(b.second); });
      const std::size_t i = earliest->second;
      waiting_.erase(earliest);
      return i;
    }
    return ready_.extract(ready_.begin()).value().second;
  }

 private:
  std::pair<std::uint64_t, std::size_t> ByClock(std::size_t i) const {
    return {openings_[i].opened_unix_ns, i};
  }
  std::pair<std::uint64_t, std::uint64_t> RankOf(std::size_t i) const {
    return {openings_[i].ranks, openings_[i].rank};
  }

  const std::span<const OpeningPlace> openings_;
  const Progress& progress_;
  const TokenReach reach_;
  std::set<std::pair<std::uint64_t, std::size_t>> ready_;
  std::multimap<std::pair<std::uint64_t, std::uint64_t>, std::size_t> waiting_;
};

bool BeginsLog(std::span<const OpeningPlace> openings, std::size_t i) {
  return i == 0 || openings[i].log != openings[i - 1].log;
}

}  // namespace

std::vector<std::size_t> InOrderOfTime(std::span<const OpeningPlace> openings) {
  Progress progress(openings);
  NextOpenings heads(openings, progress);
  for (std::size_t i = 0; i < openings.size(); ++i) {
    if (BeginsLog(openings, i)) heads.Add(i);
  }
  std::vector<std::size_t> order;
  while (!heads.empty()) {
    const std::size_t i = heads.Take();
    order.push_back(i);
    const bool have_all_come_further = progress.Add(openings[i]);
    heads.LookAgain(i, have_all_come_further);
    if (i + 1 < openings.size() && !BeginsLog(openings, i + 1)) heads.Add(i + 1);
  }
  return order;
}

ClockOrder InOrderOfClocks(std::span<const OpeningPlace> openings) {
  ClockOrder by_clocks;
  Progress progress(openings);
  StepKey start = kBehindEveryStep;
  for (const OpeningPlace& opening : openings) start = std::min(start, opening.first);
  std::set<std::pair<std::uint64_t, std::size_t>> heads;  // the next opening of each log, by clock
  const auto add = [&](std::size_t i) { heads.emplace(openings[i].opened_unix_ns, i); };
  for (std::size_t i = 0; i < openings.size(); ++i) {
    if (BeginsLog(openings, i)) add(i);
  }
  while (!heads.empty()) {
    const std::size_t i = heads.extract(heads.begin()).value().second;
    by_clocks.order.push_back(i);
    // A stream may begin at step 0 of a later epoch (StreamOptions::first_epoch).
    const bool begins_stream = openings[i].first == start && start.second == 0;
    if (!begins_stream && !progress.LeadsTo(openings[i])) by_clocks.unexplained.push_back(i);
    progress.Add(openings[i]);
    if (i + 1 < openings.size() && !BeginsLog(openings, i + 1)) add(i + 1);
  }
  return by_clocks;
}

}  // namespace forebay::cli
