// Housing: which tier each extent belongs on (its home), and how much room is left.
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
#include "server/tier/segment_store.h"

namespace forebay::stage {

// Whether staging has done with an extent of this home that lies on `tier`. What lies on the other
// tier is still to be brought home: it is the first that goes where that tier is full.
constexpr bool IsAtHome(tier::TierKind tier, plan::Home home) {
  switch (home) {
    case plan::Home::kRam: return tier == tier::TierKind::kRam;
    case plan::Home::kSsd: return tier == tier::TierKind::kSsd;
    case plan::Home::kTransient: break;
  }
  return true;
}

// Thread-safe.
class Housing {
 public:
  // `room` is beside what lies `on_ssd` already.
  explicit Housing(const plan::Room& room,
                   std::span<const tier::SegmentStore::Stored> on_ssd = {});

  // --- before a data set has its catalog ------------------------------------------------------
  struct Planned {
    plan::Home home = plan::Home::kTransient;
    std::uint64_t bytes = 0;  // of the image that it has room for
    plan::Footprint footprint;
  };
  // Where an extent belongs whose image is expected to have `bytes`, and which has `pieces`
  // checksums. An extent that was `found` on SSD, where it lay from the start, takes no room there
  // a second time, nor does one that got a home before: that has room for as many bytes as it had
  // then.
  Planned HomeOf(const tier::ExtentKey& key, std::optional<tier::TierKind> found,
                 std::uint64_t bytes, std::uint64_t pieces);
  // The SSD did not take an extent whose home it was: its home is RAM where there is room, else it
  // has none. Returns which.
  plan::Home Refuse(const tier::ExtentKey& key);
  // The catalog is there, with extents of these keys. The room of all others, that were asked about
  // or lay on SSD from the start, is free again: they are of objects that have changed since.
  // Returns their keys, to be evicted. Whoever had no home until now may get one.
  std::vector<tier::ExtentKey> ForgetOthers(std::uint64_t dataset,
                                            std::span<const tier::ExtentKey> in_catalog);
  // The data set has the homes of its extents, and accounts for what they take from now on.
  void EndCataloguing(std::uint64_t dataset);
  // Cataloguing failed: the room in RAM is free again; returns the keys, to be evicted. Extents on
  // SSD stay there for the next pass.
  std::vector<tier::ExtentKey> AbandonCataloguing(std::uint64_t dataset);
  // `dataset` is replaced by a data set of the same name that has no catalog yet: the room of its
  // extents is free; returns their keys, to be evicted. From then on `dataset` gives no extent a
  // home (Dataset::MarkReplaced).
  std::vector<tier::ExtentKey> Vacate(Dataset& dataset);

  // --- once it has one ------------------------------------------------------------------------
  struct Settled {
    plan::Home home = plan::Home::kTransient;
    bool has_housed_others = false;  // their data set's pass will claim them
  };
  // The home of an extent, now that its image is known to take `bytes`. Where that is not what was
  // planned, or it had no home, it is placed anew; room that becomes free goes to extents of the
  // data set that fitted nowhere.
  Settled Settle(Dataset& dataset, ExtentId extent, std::uint64_t bytes);
  // As above, of an extent of `bytes`.
  plan::Home Refuse(Dataset& dataset, ExtentId extent, std::uint64_t bytes);
  // Before a pass begins again: extents without a home get one where there is room by now.
  void HouseAgain(Dataset& dataset);
  // The SSD tier is retired: nothing gets a home there any more.
  void CloseSsd();

  // For extents that have no home yet.
  plan::Room left() const;

 private:
  bool HouseLocked(Dataset& dataset);
  plan::Home MoveOffSsdLocked(const plan::Footprint& footprint);

  mutable std::mutex mutex_;
  plan::Placer placer_;
  // Bytes of the files that lay on SSD from the start, as far as they were not asked about.
  std::unordered_map<tier::ExtentKey, std::uint64_t, tier::ExtentKeyHash> on_ssd_;
  // Extents of data sets that have no catalog yet; none where there is one.
  std::unordered_map<tier::ExtentKey, Planned, tier::ExtentKeyHash> early_;
};

}  // namespace forebay::stage
