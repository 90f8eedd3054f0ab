// The walk collects candidates under the cache's lock, a few at a time, and next uses are asked for
// afterwards without it: an exact answer costs some microseconds in every open stream, so it is
// asked for only where the extent may have to go. Of 1,024 random extents, the one that is needed
// last is among the 0.1 % of all extents that are needed last, on average.
#include "server/tier/eviction_search.h"

#include <algorithm>
#include <utility>

namespace forebay::tier {
namespace {

using Among = EvictionSearch::Among;
using Candidate = EvictionSearch::Candidate;

constexpr std::size_t kSampleExtents = 1024;
// Guests are usually few, and they go before extents at home, which were meant to stay.
constexpr Among kRounds[] = {Among::kSample, Among::kGuests, Among::kAll};

void SortFarthestFirst(std::vector<Candidate>& candidates) {
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.next_use != b.next_use) return a.next_use > b.next_use;
    return a.worth != b.worth ? a.worth < b.worth : a.key < b.key;
  });
}

}  // namespace

EvictionSearch::EvictionSearch(const ResidentWalk& walk, NextUse next_use)
    : walk_(walk), next_use_(std::move(next_use)) {}

std::span<const Among> EvictionSearch::Rounds() const {
  const std::span<const Among> rounds(kRounds);
  return walk_.size() > kSampleExtents ? rounds : rounds.last(1);
}

template <typename Visit>
void EvictionSearch::Look(Among among, const Visit& visit) const {
  if (among == Among::kSample) {
    walk_.VisitRandom(kSampleExtents, visit);
  } else {
    walk_.VisitAll(visit);
  }
}

void EvictionSearch::AskNextUses(std::vector<Candidate>& candidates,
                                 std::uint64_t exact_from) const {
  for (Candidate& candidate : candidates) {
    candidate.next_use = next_use_(candidate.key, exact_from);
  }
}

std::vector<Candidate> EvictionSearch::InRam(Among among, std::uint64_t next_use,
                                             bool spares_homes) const {
  std::vector<Candidate> candidates;
  Look(among, [&](const ResidentIndex::Node& node) {
    const Residency& entry = node.second;
    if (!entry.ram || entry.ram->IsPinned()) return;
    const bool is_for_guests = spares_homes || among == Among::kGuests;
    if (is_for_guests && !entry.is_guest_in_ram) return;
    const Worth worth = entry.is_guest_in_ram ? Worth::kGuest : Worth::kAtHome;
    candidates.push_back({0, worth, node.first});
  });
  AskNextUses(candidates, next_use);
  std::erase_if(candidates, [&](const Candidate& one) { return one.next_use < next_use; });
  SortFarthestFirst(candidates);
  return candidates;
}

std::vector<Candidate> EvictionSearch::OnSsd(Among among, std::uint64_t next_use) const {
  std::vector<Candidate> candidates;
  Look(among, [&](const ResidentIndex::Node& node) {
    const Residency& entry = node.second;
    if (!entry.is_on_ssd || !entry.ssd.expired()) return;
    if (among == Among::kGuests && !entry.is_guest_on_ssd) return;
    const Worth worth = entry.ram && !entry.is_guest_in_ram ? Worth::kCopyOfHome
                        : entry.is_guest_on_ssd             ? Worth::kGuest
                                                            : Worth::kAtHome;
    candidates.push_back({0, worth, node.first});
  });
  AskNextUses(candidates, next_use);
  // There is room for all that is at home, so it does not go for its equal.
  std::erase_if(candidates, [&](const Candidate& one) {
    return one.worth == Worth::kAtHome ? one.next_use <= next_use : one.next_use < next_use;
  });
  SortFarthestFirst(candidates);
  return candidates;
}

}  // namespace forebay::tier
