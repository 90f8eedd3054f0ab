// Housing: which tier each extent gets, and what room is left.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "proto/contract/ids.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// Thread-safe.
class Housing {
 public:
  explicit Housing(const plan::Room& room) : placer_(room) {}

  // Where an extent belongs whose image has `bytes`. What was `found` on a tier takes no room there
  // a second time.
  plan::Home HomeOf(std::optional<tier::TierKind> found, std::uint64_t bytes);

  struct Settled {
    plan::Home home = plan::Home::kTransient;
    bool has_housed_others = false;  // they are claimed by the data set's first pass
  };
  // Where an extent goes after all, whose size was only planned until now: it was to go to `home`,
  // and has `bytes`. What it does not take goes to extents that fitted nowhere.
  Settled Settle(Dataset& dataset, ExtentId extent, plan::Home home, std::uint64_t bytes);

  // Keeps extents from being planned into `bytes` of RAM, which are wanted for something else;
  // false where what is planned already leaves less.
  bool TakeRam(std::uint64_t bytes);
  void GiveRam(std::uint64_t bytes);
  // For extents that have no home yet.
  plan::Room left() const;

 private:
  bool HouseLocked(Dataset& dataset);

  mutable std::mutex mutex_;
  plan::Placer placer_;
};

}  // namespace forebay::stage
