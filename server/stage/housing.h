// Housing: which tier each extent gets, and what room is left.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

// Thread-safe.
class Housing {
 public:
  explicit Housing(const plan::Room& room) : placer_(room) {}

  // Where an extent belongs whose image has `bytes`. What was `found` on a tier takes no room there
  // a second time, nor does what was asked about before.
  plan::Home HomeOf(const tier::ExtentKey& key, std::optional<tier::TierKind> found,
                    std::uint64_t bytes);
  // The catalog of a data set is there: what was asked about for it and is `in_catalog` keeps its
  // room, which is its data set's from now on. The room of the rest is free again, and the keys are
  // returned, to be evicted.
  std::vector<tier::ExtentKey> EndCataloguing(
      std::uint64_t dataset, const std::function<bool(const tier::ExtentKey&)>& in_catalog);
  // There will be none for now: the room in RAM is free again, and the keys are returned, to be
  // evicted. What went to SSD stays there, for the next pass.
  std::vector<tier::ExtentKey> AbandonCataloguing(std::uint64_t dataset);

  struct Settled {
    plan::Home home = plan::Home::kTransient;
    bool has_housed_others = false;  // they are claimed by the data set's first pass
  };
  // Where an extent goes after all, whose size was only planned until now: it was to go to `home`,
  // and has `bytes`. What it does not take goes to extents that fitted nowhere.
  Settled Settle(Dataset& dataset, ExtentId extent, plan::Home home, std::uint64_t bytes);

  // For extents that have no home yet.
  plan::Room left() const;

 private:
  struct Early {
    plan::Home home = plan::Home::kTransient;
    std::uint64_t bytes = 0;
  };
  bool HouseLocked(Dataset& dataset);

  mutable std::mutex mutex_;
  plan::Placer placer_;
  // Extents of data sets that have no catalog yet; none where there is one.
  std::unordered_map<tier::ExtentKey, Early, tier::ExtentKeyHash> early_;
};

}  // namespace forebay::stage
