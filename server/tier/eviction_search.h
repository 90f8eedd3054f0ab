// EvictionSearch: finds the extents to evict when space is needed, those first that are needed
// last. It looks at a random sample of the extents first, then at all guests, and at all extents
// only if that does not help either, because it has to ask for the next use of each.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "server/tier/extent_key.h"
#include "server/tier/resident_index.h"
#include "server/tier/resident_walk.h"

namespace forebay::tier {

// When an extent is needed next, as a number to compare (smaller is sooner, ~0 is never). An answer
// below `exact_from` need not be exact, because all that the caller wants to know is that it is
// below; that may save most of the work. Called from any thread, without a lock of the cache.
using NextUse = std::function<std::uint64_t(const ExtentKey&, std::uint64_t exact_from)>;

// Thread-safe.
class EvictionSearch {
 public:
  // Ranks copies that are needed equally late by the loss of evicting them; the first value is
  // evicted first.
  enum class Worth : std::uint8_t { kCopyOfHome, kGuest, kAtHome };
  struct Candidate {
    std::uint64_t next_use = 0;
    Worth worth = Worth::kAtHome;
    ExtentKey key;
  };
  // Which extents a round of a search looks at.
  enum class Among : std::uint8_t { kSample, kGuests, kAll };

  // `walk` is borrowed.
  EvictionSearch(const ResidentWalk& walk, NextUse next_use);

  // The rounds of a search, in this order. Each is for the case that those before it have found too
  // little. A cache with few extents has one round.
  std::span<const Among> Rounds() const;
  // Extents in RAM that nobody uses and that are not needed sooner than `next_use`. With
  // `spares_homes`, returns only guests. Those that are needed last come first and, of those that
  // are needed equally late, those that are worth least. Somebody may use a candidate by the time
  // that the caller evicts it.
  std::vector<Candidate> InRam(Among among, std::uint64_t next_use, bool spares_homes) const;
  // Likewise extents on SSD; copies at home there only if they are needed later than `next_use`.
  std::vector<Candidate> OnSsd(Among among, std::uint64_t next_use) const;

 private:
  template <typename Visit>
  void Look(Among among, const Visit& visit) const;
  void AskNextUses(std::vector<Candidate>& candidates, std::uint64_t exact_from) const;

  const ResidentWalk& walk_;
  const NextUse next_use_;
};

}  // namespace forebay::tier
