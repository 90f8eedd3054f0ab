#include "server/stage/placement/housing.h"

#include <unordered_set>

namespace forebay::stage {

plan::SsdPlan SsdPlanOf(std::uint64_t capacity_bytes) {
  return {.capacity_bytes = capacity_bytes,
          .home_permille = tier::ExtentCache::Options().watermark_low_permille};
}

Housing::Housing(const plan::Room& room, std::span<const tier::SegmentStore::Stored> on_ssd)
    : placer_(room) {
  for (const auto& [key, file_bytes] : on_ssd) on_ssd_.emplace(key, file_bytes);
}

Housing::Planned Housing::HomeOf(const tier::ExtentKey& key,
                                 std::optional<tier::TierKind> found, std::uint64_t bytes,
                                 std::uint64_t pieces) {
  std::lock_guard lock(mutex_);
  const auto known = early_.find(key);
  if (known != early_.end() && known->second.home != plan::Home::kTransient) return known->second;
  Planned planned{.home = plan::Home::kSsd,
                  .bytes = bytes,
                  .footprint = FootprintOf(bytes, pieces)};
  const bool fits_ram = planned.footprint.ram_bytes <= placer_.left().ram_bytes;
  const bool has_room =
      found == tier::TierKind::kSsd && !fits_ram && on_ssd_.erase(key) > 0;
  // An extent that is found elsewhere has no space reserved there, so it is placed like any other.
  if (!has_room) planned.home = placer_.Place(planned.footprint);
  early_[key] = planned;
  return planned;
}

plan::Home Housing::Refuse(const tier::ExtentKey& key) {
  std::lock_guard lock(mutex_);
  const auto known = early_.find(key);
  if (known == early_.end()) return plan::Home::kTransient;
  plan::Home& home = known->second.home;
  if (home == plan::Home::kSsd) home = MoveOffSsdLocked(known->second.footprint);
  return home;
}

std::vector<tier::ExtentKey> Housing::ForgetOthers(
    std::uint64_t dataset, std::span<const tier::ExtentKey> in_catalog) {
  const std::unordered_set<tier::ExtentKey, tier::ExtentKeyHash> known(in_catalog.begin(),
                                                                       in_catalog.end());
  std::vector<tier::ExtentKey> left;
  const auto is_other = [&](const tier::ExtentKey& key) {
    return key.dataset == dataset && !known.contains(key);
  };
  std::lock_guard lock(mutex_);
  std::erase_if(early_, [&](const auto& entry) {
    const auto& [key, early] = entry;
    if (!is_other(key)) return false;
    placer_.Release(early.home, early.footprint);
    left.push_back(key);
    return true;
  });
  std::erase_if(on_ssd_, [&](const auto& entry) {
    const auto& [key, file_bytes] = entry;
    if (!is_other(key)) return false;
    placer_.Release(plan::Home::kSsd, {.ram_bytes = 0, .ssd_bytes = file_bytes});
    left.push_back(key);
    return true;
  });
  return left;
}

void Housing::EndCataloguing(std::uint64_t dataset) {
  std::lock_guard lock(mutex_);
  std::erase_if(early_, [&](const auto& entry) { return entry.first.dataset == dataset; });
}

std::vector<tier::ExtentKey> Housing::AbandonCataloguing(std::uint64_t dataset) {
  std::vector<tier::ExtentKey> left;
  std::lock_guard lock(mutex_);
  std::erase_if(early_, [&](const auto& entry) {
    const auto& [key, early] = entry;
    if (key.dataset != dataset || early.home == plan::Home::kSsd) return false;
    placer_.Release(early.home, early.footprint);
    left.push_back(key);
    return true;
  });
  return left;
}

std::vector<tier::ExtentKey> Housing::Vacate(Dataset& dataset) {
  std::vector<tier::ExtentKey> left;
  std::lock_guard lock(mutex_);
  dataset.MarkReplaced();
  for (std::uint32_t i = 0; i < dataset.catalog()->extent_count(); ++i) {
    const ExtentId extent(i);
    placer_.Release(dataset.home(extent),
                    dataset.FootprintOf(extent, dataset.PlannedBytes(extent)));
    left.push_back(dataset.key(extent));
  }
  return left;
}

Housing::Settled Housing::Settle(Dataset& dataset, ExtentId extent, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  // A copy of what another node keeps needs no space reserved: it can be copied again.
  if (dataset.is_replaced() || dataset.IsElsewhere(extent)) return {};
  const plan::Home home = dataset.home(extent);
  const std::uint64_t planned = dataset.PlannedBytes(extent);
  if (home != plan::Home::kTransient && planned == bytes) return {.home = home};
  placer_.Release(home, dataset.FootprintOf(extent, planned));
  const plan::Home settled = placer_.Place(dataset.FootprintOf(extent, bytes));
  dataset.Settle(extent, settled, bytes);
  return {.home = settled, .has_housed_others = HouseLocked(dataset)};
}

plan::Home Housing::Refuse(Dataset& dataset, ExtentId extent, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (dataset.is_replaced()) return plan::Home::kTransient;
  if (dataset.home(extent) == plan::Home::kSsd) {
    dataset.Settle(extent, MoveOffSsdLocked(dataset.FootprintOf(extent, bytes)), bytes);
  }
  return dataset.home(extent);
}

plan::Home Housing::MoveOffSsdLocked(const plan::Footprint& footprint) {
  placer_.Release(plan::Home::kSsd, footprint);
  return placer_.PlaceInRam(footprint) ? plan::Home::kRam : plan::Home::kTransient;
}

void Housing::HouseAgain(Dataset& dataset) {
  std::lock_guard lock(mutex_);
  if (dataset.is_replaced()) return;
  for (const ExtentId extent : dataset.Homeless()) {
    const std::uint64_t planned = dataset.PlannedBytes(extent);
    const plan::Home home = placer_.Place(dataset.FootprintOf(extent, planned));
    if (home != plan::Home::kTransient) dataset.Settle(extent, home, planned);
  }
}

void Housing::CloseSsd() {
  std::lock_guard lock(mutex_);
  placer_.CloseSsd();
}

// Gives homes to extents without one, in staging order, until one does not fit. True if any got
// one.
bool Housing::HouseLocked(Dataset& dataset) {
  bool is_any = false;
  while (const std::optional<ExtentId> extent = dataset.NextHomeless()) {
    const plan::Footprint planned =
        dataset.FootprintOf(*extent, dataset.PlannedBytes(*extent));
    const plan::Home home = placer_.Place(planned);
    if (home == plan::Home::kTransient) break;
    if (dataset.GiveHome(*extent, home)) {
      is_any = true;
    } else {
      placer_.Release(home, planned);
    }
  }
  return is_any;
}

plan::Room Housing::left() const {
  std::lock_guard lock(mutex_);
  return placer_.left();
}

}  // namespace forebay::stage
