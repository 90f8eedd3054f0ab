// PlacementTable: reserves space on the tiers for extents. The tier on which an extent has space
// reserved is its *home*; an extent that fits on no tier has none. plan::Placer decides; this table
// keeps the space that is left, over all data sets, and moves homes as real sizes become known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"
#include "server/tier/extent_key.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::stage {

// Whether an extent with this home, which is on `tier`, needs no more staging. An extent on another
// tier than its home is a guest there, which is evicted first, so it is still to be copied home.
constexpr bool IsAtHome(tier::TierKind tier, plan::HomeTier home) {
  switch (home) {
    case plan::HomeTier::kRam: return tier == tier::TierKind::kRam;
    case plan::HomeTier::kSsd: return tier == tier::TierKind::kSsd;
    case plan::HomeTier::kNone: break;
  }
  return true;
}

// Space for homes on an SSD tier of this capacity: the part below the watermark down to which the
// cache evicts, so that extents at home there are not evicted.
plan::SsdPlan SsdPlanOf(std::uint64_t capacity_bytes);

// Thread-safe.
class PlacementTable {
 public:
  // When the SSD has refused an extent, it is tried for own extents only during a pause: a minute
  // at first, because whoever fills the disk needs some time to free space. Each attempt that fails
  // costs the transfer of extents for which there is no space, so the pause doubles if the SSD
  // refuses again within the length of the last pause after its end.
  static constexpr std::int64_t kSsdPauseMinNs = 60'000'000'000;
  static constexpr std::int64_t kSsdPauseMaxNs = 16 * kSsdPauseMinNs;

  // `space`: for homes, without the space of the files that are `on_ssd` already. `clock` is
  // borrowed.
  PlacementTable(const plan::TierSpace& space, const io::Clock& clock,
                 std::span<const tier::SegmentStore::Stored> on_ssd = {});

  // Whose extents get a home: this node's own ones, or others that it keeps, too, as copies or
  // because their node leaves. While an SSD pauses that has refused extents, because it is full or
  // fails, it is tried for own ones only.
  enum class Share : std::uint8_t { kOwn, kOfOthers };

  // --- before a data set has its catalog ------------------------------------------------------
  struct Reservation {
    plan::HomeTier home = plan::HomeTier::kNone;
    std::uint64_t bytes = 0;  // size of the image for which space is reserved
    plan::Footprint footprint;
  };
  // Gives an extent its home. `bytes`: expected size of its image; `pieces`: number of its
  // checksums. `found`: the tier on which it is already, if any. An extent that was on SSD when the
  // daemon started and does not fit in RAM keeps its space on SSD. An extent that has a home from
  // an earlier call keeps it, with the size that was planned then.
  Reservation Reserve(const tier::ExtentKey& key, std::optional<tier::TierKind> found,
                      std::uint64_t bytes, std::uint64_t pieces, Share share = Share::kOwn);
  // Call when the SSD has refused an extent whose home it is: moves its home to RAM if RAM has
  // space, else the extent loses its home. Returns the new home.
  plan::HomeTier MoveOffSsd(const tier::ExtentKey& key);
  // The catalog of `dataset` is known and has extents with the keys `in_catalog`. Frees the space
  // of all other extents of the data set that got a home or were on SSD from the start: their
  // objects have changed. Returns their keys; the caller evicts them.
  std::vector<tier::ExtentKey> ReleaseOthers(std::uint64_t dataset,
                                             std::span<const tier::ExtentKey> in_catalog);
  // Whether ReleaseForeign would find any.
  bool HasForeign(std::span<const std::uint64_t> datasets) const;
  // Extents of `needed_bytes` are to be placed. If there is not so much space, frees that of all
  // extents which an earlier daemon has left on SSD for data sets other than these (DatasetHash):
  // nobody else would ever free it. Returns their keys; the caller evicts them.
  std::vector<tier::ExtentKey> ReleaseForeign(std::span<const std::uint64_t> datasets,
                                              std::uint64_t needed_bytes);
  // From now on `dataset` keeps the homes of its extents itself.
  void EndCataloguing(std::uint64_t dataset);
  // Cataloguing failed: frees the space in RAM and returns the keys of these extents; the caller
  // evicts them. Extents on SSD stay there for the next pass.
  std::vector<tier::ExtentKey> AbandonCataloguing(std::uint64_t dataset);
  // `dataset` is replaced by a data set of the same name that has no catalog yet: frees the space
  // of its extents and returns their keys; the caller evicts them. After that no extent of
  // `dataset` gets a home (DatasetVersion::MarkReplaced).
  std::vector<tier::ExtentKey> ReleaseAll(Dataset& dataset);

  // --- once it has one ------------------------------------------------------------------------
  struct Placement {
    plan::HomeTier home = plan::HomeTier::kNone;
    bool has_placed_others = false;  // others got a home; the pass of their data set claims them
  };
  // Decides the home of an extent whose image is now known to have `bytes`. If that is not the size
  // that was planned, or if it had no home, it is placed again, and space that becomes free goes to
  // extents of the data set without a home.
  Placement Place(Dataset& dataset, ExtentId extent, std::uint64_t bytes);
  // As MoveOffSsd above, for an extent of a data set with a catalog, whose image has `bytes`.
  plan::HomeTier MoveOffSsd(Dataset& dataset, ExtentId extent, std::uint64_t bytes);
  // Call before a pass begins again: gives homes to those of `extents` that have none, in this
  // order, as far as there is space.
  void PlaceAgain(Dataset& dataset, std::span<const ExtentId> extents, Share share);
  // Gives homes to remote extents of `wanted`, in this order, within the budget for copies
  // (DatasetOptions::copy_bytes). Copies that no stream wants (Dataset::WantCopies) lose their
  // homes for that.
  struct NewCopies {
    std::vector<tier::ExtentKey> dropped;  // the caller evicts them
    bool has_placed = false;               // a pass has to stage what got a home
  };
  NewCopies PlaceCopies(Dataset& dataset, std::span<const ExtentId> wanted);
  // The SSD may have space again, although it has refused an extent (MoveOffSsd): ends its pause.
  void RetrySsd();
  // Call when the SSD tier is retired: from now on no extent gets a home there.
  void CloseSsd();

  // Space that is not reserved.
  plan::TierSpace left() const;

 private:
  bool PlaceOthersLocked(Dataset& dataset) FOREBAY_REQUIRES(mutex_);
  plan::HomeTier PlaceLocked(const plan::Footprint& footprint, Share share)
      FOREBAY_REQUIRES(mutex_);
  plan::HomeTier MoveOffSsdLocked(const plan::Footprint& footprint) FOREBAY_REQUIRES(mutex_);
  void BeginSsdPauseLocked() FOREBAY_REQUIRES(mutex_);
  bool SsdPausesLocked() const FOREBAY_REQUIRES(mutex_) {
    return clock_.NowNs() < ssd_pause_end_ns_;
  }

  const io::Clock& clock_;
  mutable Mutex mutex_;
  plan::Placer placer_ FOREBAY_GUARDED_BY(mutex_);
  // The length of the SSD's last pause, and its end by clock_. Both are 0 if there was none since
  // the last call of RetrySsd.
  std::int64_t ssd_pause_ns_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::int64_t ssd_pause_end_ns_ FOREBAY_GUARDED_BY(mutex_) = 0;
  // File sizes of extents that were on SSD from the start and for which Reserve was not called.
  std::unordered_map<tier::ExtentKey, std::uint64_t, tier::ExtentKeyHash> on_ssd_
      FOREBAY_GUARDED_BY(mutex_);
  // Homes of extents of data sets that have no catalog yet.
  std::unordered_map<tier::ExtentKey, Reservation, tier::ExtentKeyHash> reserved_
      FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage
