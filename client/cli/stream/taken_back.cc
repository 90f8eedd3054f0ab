// Two openings came in a certain order if one is behind the other in its file, or if it goes on
// from a token to which nothing leads without the other. All others may have come in either order,
// for clocks of nodes differ.
#include "client/cli/stream/taken_back.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace forebay::cli {
namespace {

// Lowers `step` to `other`.
void Lower(StepKey& step, const StepKey& other) { step = std::min(step, other); }

// The first steps of openings, by their number of ranks.
class FirstSteps {
 public:
  void Add(const OpeningPlace& opening) {
    Lower(first_.try_emplace(opening.ranks, opening.first).first->second, opening.first);
  }
  StepKey OfOtherNumbers(std::uint64_t ranks) const {
    StepKey first = kBehindEveryStep;
    for (const auto& [number, of_number] : first_) {
      if (number != ranks) Lower(first, of_number);
    }
    return first;
  }

 private:
  std::map<std::uint64_t, StepKey> first_;
};

// The first steps of openings that came later.
class LaterOpenings {
 public:
  void Add(const OpeningPlace& opening) {
    by_number_.Add(opening);
    Lower(by_rank_.try_emplace({opening.ranks, opening.rank}, opening.first).first->second,
          opening.first);
  }

  // Another number of ranks is another run of the whole job, which was restored to that step. On
  // the same number, a rank may have been restarted alone: the other ranks went on meanwhile.
  StepKey TakeBackFrom(const OpeningPlace& opening) const {
    StepKey from = by_number_.OfOtherNumbers(opening.ranks);
    const auto own = by_rank_.find({opening.ranks, opening.rank});
    if (own != by_rank_.end()) Lower(from, own->second);
    return from;
  }

 private:
  FirstSteps by_number_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, StepKey> by_rank_;  // ranks, rank
};

// What is taken back whatever clocks say.
class ClocklessOrder {
 public:
  ClocklessOrder(std::span<const OpeningPlace> openings, std::vector<TakenBack>& taken_back)
      : openings_(openings), taken_back_(taken_back), reach_(openings) {}

  void Find() {
    std::map<StepKey, RankOpenings> by_together;
    for (const auto& [number, ranks] : reach_.by_number()) {
      for (const auto& [rank, openings] : ranks) {
        for (const std::size_t i : openings) {
          const StepKey together = reach_.TogetherWithout(i);
          CompareWithOwnRank(i, openings, together);
          if (reach_.by_number().size() > 1) by_together[together].push_back(i);
        }
      }
    }
    for (const auto& [together, openings] : by_together) {
      CompareWithOtherNumbers(openings, together);
    }
  }

 private:
  void CompareWithOwnRank(std::size_t i, const RankOpenings& rank, const StepKey& together) {
    const TokenReach::Progress without = reach_.Follow(rank, together, i);
    for (const std::size_t other : rank) {
      if (other == i) continue;
      const bool is_behind = openings_[other].log == openings_[i].log && other > i;
      const bool needs = reach_.IsLedTo(other) && without.begun.count(other) == 0;
      if (is_behind || needs) {
        Lower(taken_back_[i].latest, openings_[other].first);
      } else {
        Lower(taken_back_[other].earliest, openings_[i].first);
      }
    }
  }

  // `openings`: those without which all come as far as `together`. They differ in nothing else for
  // other numbers of ranks.
  void CompareWithOtherNumbers(const RankOpenings& openings, const StepKey& together) {
    FirstSteps first, first_behind;
    for (const std::size_t i : openings) first.Add(openings_[i]);
    for (const auto& [number, ranks] : reach_.by_number()) {
      const StepKey first_of_others = first.OfOtherNumbers(number);
      for (const auto& [rank, rank_openings] : ranks) {
        const StepKey reached = reach_.Follow(rank_openings, together).reached;
        for (const std::size_t other : rank_openings) {
          if (reach_.IsLedTo(other) && openings_[other].first > reached) {
            first_behind.Add(openings_[other]);
          } else {
            Lower(taken_back_[other].earliest, first_of_others);
          }
        }
      }
    }
    for (const std::size_t i : openings) {
      Lower(taken_back_[i].latest, first_behind.OfOtherNumbers(openings_[i].ranks));
    }
  }

  const std::span<const OpeningPlace> openings_;
  std::vector<TakenBack>& taken_back_;
  TokenReach reach_;
};

}  // namespace

std::vector<TakenBack> FindTakenBack(std::span<const OpeningPlace> openings) {
  std::vector<TakenBack> taken_back(openings.size());
  LaterOpenings later;
  std::map<std::size_t, LaterOpenings> later_in_log;
  for (std::size_t i = openings.size(); i-- > 0;) {
    const OpeningPlace& opening = openings[i];
    LaterOpenings& in_log = later_in_log[opening.log];
    taken_back[i].from = later.TakeBackFrom(opening);
    taken_back[i].latest = in_log.TakeBackFrom(opening);
    later.Add(opening);
    in_log.Add(opening);
  }
  ClocklessOrder(openings, taken_back).Find();
  return taken_back;
}

}  // namespace forebay::cli
