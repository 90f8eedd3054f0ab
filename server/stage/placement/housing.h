// Housing: which tier is each extent's home, and how much space is left on the tiers. An extent's
// home is the tier on which it has space reserved; kTransient: it fits on none.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"
#include "server/tier/extent_key.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::stage {

// Whether an extent on `tier` with this home needs no more staging. An extent on another tier than
// its home must still be brought home, because it is evicted first where it is.
constexpr bool IsAtHome(tier::TierKind tier, plan::Home home) {
  switch (home) {
    case plan::Home::kRam: return tier == tier::TierKind::kRam;
    case plan::Home::kSsd: return tier == tier::TierKind::kSsd;
    case plan::Home::kTransient: break;
  }
  return true;
}

// Extents have a home on SSD below the watermark at which the cache begins to evict: they stay.
plan::SsdPlan SsdPlanOf(std::uint64_t capacity_bytes);

// Thread-safe.
class Housing {
 public:
  // `room` does not include the space of the files that are `on_ssd` already.
  explicit Housing(const plan::Room& room,
                   std::span<const tier::SegmentStore::Stored> on_ssd = {});

  // --- before a data set has its catalog ------------------------------------------------------
  struct Planned {
    plan::Home home = plan::Home::kTransient;
    std::uint64_t bytes = 0;  // size of the image for which space is reserved
    plan::Footprint footprint;
  };
  // Gives an extent its home. `bytes`: expected size of its image; `pieces`: number of its
  // checksums. `found`: the tier on which it is already, if any. An extent that was on SSD when the
  // daemon started and does not fit in RAM keeps its space on SSD. An extent that has a home from
  // an earlier call keeps it, with the size that was planned then.
  Planned HomeOf(const tier::ExtentKey& key, std::optional<tier::TierKind> found,
                 std::uint64_t bytes, std::uint64_t pieces);
  // The SSD did not take an extent whose home it was: moves its home to RAM if that has space, else
  // the extent loses its home. Returns the new home.
  plan::Home Refuse(const tier::ExtentKey& key);
  // The catalog of `dataset` is known and has extents with the keys `in_catalog`. Frees the space
  // of all other extents of the data set that got a home or were on SSD from the start: their
  // objects have changed. Returns their keys; the caller evicts them.
  std::vector<tier::ExtentKey> ForgetOthers(std::uint64_t dataset,
                                            std::span<const tier::ExtentKey> in_catalog);
  // From now on `dataset` keeps the homes of its extents itself.
  void EndCataloguing(std::uint64_t dataset);
  // Cataloguing failed: frees the space in RAM and returns the keys of these extents; the caller
  // evicts them. Extents on SSD stay there for the next pass.
  std::vector<tier::ExtentKey> AbandonCataloguing(std::uint64_t dataset);
  // `dataset` is replaced by a data set of the same name that has no catalog yet: frees the space
  // of its extents and returns their keys; the caller evicts them. After that no extent of
  // `dataset` gets a home (Dataset::MarkReplaced).
  std::vector<tier::ExtentKey> Vacate(Dataset& dataset);

  // --- once it has one ------------------------------------------------------------------------
  struct Settled {
    plan::Home home = plan::Home::kTransient;
    bool has_housed_others = false;  // others got a home; the pass of their data set claims them
  };
  // Decides the home of an extent whose image is now known to have `bytes`. If that is not the size
  // that was planned, or if it had no home, it is placed again, and space that becomes free goes to
  // extents of the data set without a home.
  Settled Settle(Dataset& dataset, ExtentId extent, std::uint64_t bytes);
  // As above, for an extent whose image has `bytes`.
  plan::Home Refuse(Dataset& dataset, ExtentId extent, std::uint64_t bytes);
  // Before a pass begins again: gives extents without a home one, where there is space now.
  void HouseAgain(Dataset& dataset);
  // The SSD tier is retired: nothing gets a home there any more.
  void CloseSsd();

  // Space for extents that have no home yet.
  plan::Room left() const;

 private:
  bool HouseLocked(Dataset& dataset);
  plan::Home MoveOffSsdLocked(const plan::Footprint& footprint);

  mutable std::mutex mutex_;
  plan::Placer placer_;
  // File sizes of extents that were on SSD from the start and that HomeOf was not asked about.
  std::unordered_map<tier::ExtentKey, std::uint64_t, tier::ExtentKeyHash> on_ssd_;
  // Homes of extents of data sets that have no catalog yet.
  std::unordered_map<tier::ExtentKey, Planned, tier::ExtentKeyHash> early_;
};

}  // namespace forebay::stage
