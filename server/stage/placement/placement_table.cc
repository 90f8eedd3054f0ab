// Two phases per data set. Before its catalog is known, reservations are kept here, by key. Then
// the Dataset keeps the homes, and this table only accounts for the space. One mutex guards both,
// so that two threads never give the same space away; a Dataset's own mutex is taken inside it.
#include "server/stage/placement/placement_table.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

namespace forebay::stage {

plan::SsdPlan SsdPlanOf(std::uint64_t capacity_bytes) {
  return {.capacity_bytes = capacity_bytes,
          .home_permille = tier::ExtentCache::Options().watermark_low_permille};
}

PlacementTable::PlacementTable(const plan::TierSpace& space, const io::Clock& clock,
                               std::span<const tier::SegmentStore::Stored> on_ssd)
    : clock_(clock), placer_(space) {
  // The caller has subtracted these files from `space`, whether or not an extent claims them.
  for (const auto& [key, file_bytes] : on_ssd) on_ssd_.emplace(key, file_bytes);
}

PlacementTable::Reservation PlacementTable::Reserve(const tier::ExtentKey& key,
                                                    std::optional<tier::TierKind> found,
                                                    std::uint64_t bytes, std::uint64_t pieces,
                                                    Share share) {
  const MutexLock lock(mutex_);
  const auto known = reserved_.find(key);
  // An extent without a home is tried again: space may have become free.
  if (known != reserved_.end() && known->second.home != plan::HomeTier::kNone) return known->second;
  Reservation planned{.home = plan::HomeTier::kSsd,
                      .bytes = bytes,
                      .footprint = FootprintOf(bytes, pieces)};
  const bool fits_ram = planned.footprint.ram_bytes <= placer_.left().ram_bytes;
  // The space of files that an earlier daemon left is not part of the placer's: such an extent
  // keeps its space. Any other extent is placed, also one that is on a tier as a guest.
  const bool keeps_its_file =
      found == tier::TierKind::kSsd && !fits_ram && on_ssd_.erase(key) > 0;
  if (!keeps_its_file) planned.home = PlaceLocked(planned.footprint, share);
  reserved_[key] = planned;
  return planned;
}

plan::HomeTier PlacementTable::PlaceLocked(const plan::Footprint& footprint, Share share) {
  if (share == Share::kOwn || !SsdPausesLocked()) return placer_.Place(footprint);
  return placer_.PlaceInRam(footprint) ? plan::HomeTier::kRam : plan::HomeTier::kNone;
}

plan::HomeTier PlacementTable::MoveOffSsd(const tier::ExtentKey& key) {
  const MutexLock lock(mutex_);
  const auto known = reserved_.find(key);
  if (known == reserved_.end()) return plan::HomeTier::kNone;
  plan::HomeTier& home = known->second.home;
  // Another thread may have moved it already.
  if (home == plan::HomeTier::kSsd) home = MoveOffSsdLocked(known->second.footprint);
  return home;
}

std::vector<tier::ExtentKey> PlacementTable::ReleaseOthers(
    std::uint64_t dataset, std::span<const tier::ExtentKey> in_catalog) {
  const std::unordered_set<tier::ExtentKey, tier::ExtentKeyHash> known(in_catalog.begin(),
                                                                       in_catalog.end());
  std::vector<tier::ExtentKey> left;
  const auto is_other = [&](const tier::ExtentKey& key) {
    return key.dataset == dataset && !known.contains(key);
  };
  const MutexLock lock(mutex_);
  std::erase_if(reserved_, [&](const auto& entry) FOREBAY_REQUIRES(mutex_) {
    const auto& [key, early] = entry;
    if (!is_other(key)) return false;
    placer_.Release(early.home, early.footprint);
    left.push_back(key);
    return true;
  });
  std::erase_if(on_ssd_, [&](const auto& entry) FOREBAY_REQUIRES(mutex_) {
    const auto& [key, file_bytes] = entry;
    if (!is_other(key)) return false;
    // A file of an earlier daemon, for an extent that is no longer in the catalog: its space, which
    // the placer never had, becomes free for others.
    placer_.Release(plan::HomeTier::kSsd, {.ram_bytes = 0, .ssd_bytes = file_bytes});
    left.push_back(key);
    return true;
  });
  return left;
}

bool PlacementTable::HasForeign(std::span<const std::uint64_t> datasets) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(on_ssd_, [&](const auto& entry) {
    return std::ranges::find(datasets, entry.first.dataset) == datasets.end();
  });
}

std::vector<tier::ExtentKey> PlacementTable::ReleaseForeign(
    std::span<const std::uint64_t> datasets, std::uint64_t needed_bytes) {
  std::vector<tier::ExtentKey> left;
  const MutexLock lock(mutex_);
  const plan::TierSpace space = placer_.left();
  if (needed_bytes <= space.ram_bytes + space.ssd_bytes) return left;
  std::erase_if(on_ssd_, [&](const auto& entry) FOREBAY_REQUIRES(mutex_) {
    const auto& [key, file_bytes] = entry;
    if (std::ranges::find(datasets, key.dataset) != datasets.end()) return false;
    placer_.Release(plan::HomeTier::kSsd, {.ram_bytes = 0, .ssd_bytes = file_bytes});
    left.push_back(key);
    return true;
  });
  return left;
}

void PlacementTable::EndCataloguing(std::uint64_t dataset) {
  const MutexLock lock(mutex_);
  // Only the entries: the space stays taken, and the Dataset answers for it from now on.
  std::erase_if(reserved_, [&](const auto& entry) { return entry.first.dataset == dataset; });
}

std::vector<tier::ExtentKey> PlacementTable::AbandonCataloguing(std::uint64_t dataset) {
  std::vector<tier::ExtentKey> left;
  const MutexLock lock(mutex_);
  std::erase_if(reserved_, [&](const auto& entry) FOREBAY_REQUIRES(mutex_) {
    const auto& [key, early] = entry;
    // Reservations on SSD stay with their files, which the next attempt will find.
    if (key.dataset != dataset || early.home == plan::HomeTier::kSsd) return false;
    placer_.Release(early.home, early.footprint);
    left.push_back(key);
    return true;
  });
  return left;
}

std::vector<tier::ExtentKey> PlacementTable::ReleaseAll(Dataset& dataset) {
  std::vector<tier::ExtentKey> left;
  const MutexLock lock(mutex_);
  // First, so that no load under way gives one of these extents a home again (Place, MoveOffSsd).
  dataset.version().MarkReplaced();
  for (std::uint32_t i = 0; i < dataset.catalog()->extent_count(); ++i) {
    const ExtentId extent(i);
    // With the planned size, for which the space was reserved.
    placer_.Release(dataset.home(extent),
                    dataset.FootprintOf(extent, dataset.PlannedBytes(extent)));
    left.push_back(dataset.key(extent));
  }
  return left;
}

PlacementTable::Placement PlacementTable::Place(Dataset& dataset, ExtentId extent,
                                                std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const plan::HomeTier home = dataset.home(extent);
  // An extent that another node keeps gets no space here unless it was chosen to be copied, because
  // it can be asked for again.
  const bool is_passing_by = home == plan::HomeTier::kNone && dataset.IsRemote(extent);
  if (dataset.is_replaced() || is_passing_by) return {};
  const std::uint64_t planned = dataset.PlannedBytes(extent);
  // The usual case of a raw extent: the plan was exact.
  if (home != plan::HomeTier::kNone && planned == bytes) return {.home = home};
  placer_.Release(home, dataset.FootprintOf(extent, planned));
  // Released first: the extent may stay where it is, with its real size.
  const plan::HomeTier placed =
      PlaceLocked(dataset.FootprintOf(extent, bytes),
                  dataset.IsRemote(extent) ? Share::kOfOthers : Share::kOwn);
  dataset.SetHome(extent, placed, bytes);
  return {.home = placed, .has_placed_others = PlaceOthersLocked(dataset)};
}

plan::HomeTier PlacementTable::MoveOffSsd(Dataset& dataset, ExtentId extent, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (dataset.is_replaced()) return plan::HomeTier::kNone;
  if (dataset.home(extent) == plan::HomeTier::kSsd) {
    dataset.SetHome(extent, MoveOffSsdLocked(dataset.FootprintOf(extent, bytes)), bytes);
  }
  return dataset.home(extent);
}

// The space on SSD is released even though the SSD has just refused it: it may take a smaller or a
// later extent. A tier that is retired is closed as a whole (CloseSsd).
plan::HomeTier PlacementTable::MoveOffSsdLocked(const plan::Footprint& footprint) {
  placer_.Release(plan::HomeTier::kSsd, footprint);
  BeginSsdPauseLocked();
  return placer_.PlaceInRam(footprint) ? plan::HomeTier::kRam : plan::HomeTier::kNone;
}

// Extents that were placed before a pause, and own ones, may be refused while it goes on.
void PlacementTable::BeginSsdPauseLocked() {
  if (SsdPausesLocked()) return;
  const std::int64_t now_ns = clock_.NowNs();
  const bool is_soon = now_ns - ssd_pause_end_ns_ < ssd_pause_ns_;
  ssd_pause_ns_ = is_soon ? std::min(2 * ssd_pause_ns_, kSsdPauseMaxNs) : kSsdPauseMinNs;
  ssd_pause_end_ns_ = now_ns + ssd_pause_ns_;
}

void PlacementTable::PlaceAgain(Dataset& dataset, std::span<const ExtentId> extents,
                                Share share) {
  const MutexLock lock(mutex_);
  if (dataset.is_replaced()) return;
  // A smaller extent may fit where a larger one before it did not, so the loop goes through all.
  for (const ExtentId extent : extents) {
    // A load that is under way may have placed it meanwhile.
    if (dataset.home(extent) != plan::HomeTier::kNone) continue;
    const std::uint64_t planned = dataset.PlannedBytes(extent);
    const plan::HomeTier home = PlaceLocked(dataset.FootprintOf(extent, planned), share);
    if (home != plan::HomeTier::kNone) dataset.SetHome(extent, home, planned);
  }
}

PlacementTable::NewCopies PlacementTable::PlaceCopies(Dataset& dataset,
                                                      std::span<const ExtentId> wanted) {
  const MutexLock lock(mutex_);
  NewCopies copies;
  if (dataset.is_replaced()) return copies;
  std::vector<ExtentId> spare = dataset.UnwantedCopies();
  // What they leave on an SSD that refuses extents would be of no use.
  if (SsdPausesLocked()) {
    std::erase_if(spare, [&](ExtentId copy) { return dataset.home(copy) != plan::HomeTier::kRam; });
  }
  std::uint64_t copied_bytes = dataset.copied_bytes();
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  const auto drop_one = [&]() FOREBAY_REQUIRES(mutex_) {
    while (!spare.empty()) {
      const ExtentId extent = spare.back();
      spare.pop_back();
      const std::optional<plan::HomeTier> home = dataset.DropCopy(extent);
      if (!home) continue;
      placer_.Release(*home, dataset.FootprintOf(extent, dataset.PlannedBytes(extent)));
      copied_bytes -= catalog->extent(extent).bytes;
      copies.dropped.push_back(dataset.key(extent));
      return true;
    }
    return false;
  };
  for (const ExtentId extent : wanted) {
    if (!dataset.IsRemote(extent) || dataset.home(extent) != plan::HomeTier::kNone) continue;
    const std::uint64_t bytes = catalog->extent(extent).bytes;
    while (copied_bytes + bytes > dataset.options().copy_bytes && drop_one()) {}
    if (copied_bytes + bytes > dataset.options().copy_bytes) break;
    const plan::Footprint planned = dataset.FootprintOf(extent, dataset.PlannedBytes(extent));
    plan::HomeTier home = PlaceLocked(planned, Share::kOfOthers);
    while (home == plan::HomeTier::kNone && drop_one()) {
      home = PlaceLocked(planned, Share::kOfOthers);
    }
    if (home == plan::HomeTier::kNone) break;
    if (dataset.GiveHome(extent, home)) {
      copied_bytes += bytes;
      copies.has_placed = true;
    } else {
      placer_.Release(home, planned);  // it is on a tier, or on its way, for a demand
    }
  }
  return copies;
}

void PlacementTable::RetrySsd() {
  const MutexLock lock(mutex_);
  ssd_pause_ns_ = 0;
  ssd_pause_end_ns_ = 0;
}

void PlacementTable::CloseSsd() {
  const MutexLock lock(mutex_);
  placer_.CloseSsd();
  ssd_pause_end_ns_ = std::numeric_limits<std::int64_t>::max();
}

// Gives homes to extents without one, in staging order, until one does not fit. Returns true if any
// got one. In a pass that takes over from nodes which leave, most of these extents are of others.
bool PlacementTable::PlaceOthersLocked(Dataset& dataset) {
  bool is_any = false;
  const Share share = dataset.pass_takes_over() ? Share::kOfOthers : Share::kOwn;
  while (const std::optional<ExtentId> extent = dataset.NextWithoutHome()) {
    const plan::Footprint planned =
        dataset.FootprintOf(*extent, dataset.PlannedBytes(*extent));
    const plan::HomeTier home = PlaceLocked(planned, share);
    if (home == plan::HomeTier::kNone) break;
    // A demand may have claimed the extent since; its load then places it (Place).
    if (dataset.GiveHome(*extent, home)) {
      is_any = true;
    } else {
      placer_.Release(home, planned);
    }
  }
  return is_any;
}

plan::TierSpace PlacementTable::left() const {
  const MutexLock lock(mutex_);
  return placer_.left();
}

}  // namespace forebay::stage
