// StagingTiers: the tiers as staging uses them. Allocates memory for an image and waits for it,
// publishes images on a tier, and copies them between tiers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// Values of tier::NextUse. kNotAskedFor: later than every extent that somebody asked for.
inline constexpr std::uint64_t kNotAskedFor = ~std::uint64_t{0} - 1;
// Later than every extent, so that nothing is evicted for it.
inline constexpr std::uint64_t kEvictsNobody = ~std::uint64_t{0};
// For memory that staging works in: may evict any extent.
inline constexpr std::uint64_t kNeededNow = 0;

// An extent's bytes and checksums, ready to be published on a tier.
struct ExtentImage {
  tier::ArenaBlock block;
  tier::ExtentChecksums checksums;
};

struct StagingTiersOptions {
  bool has_ssd = false;  // false: all extents go to RAM
  // Part of the RAM tier for extents on their way to SSD; no extent has its home there. 0: no
  // bound.
  std::uint64_t working_bytes = 0;
};

// Thread-safe.
class StagingTiers {
  // The part of working_bytes that one load holds.
  struct Share {
    std::uint64_t bytes = 0;
    std::int64_t since_ns = 0;
    bool is_lent = false;  // no longer counts against working_bytes
  };

 public:
  // Borrowed: `cache`, `memory` (the signal of the cache's arena) and `clock`.
  StagingTiers(tier::ExtentCache& cache, tier::MemorySignal& memory,
               const StagingTiersOptions& options, tier::NextUse next_use, io::Clock& clock)
      : cache_(cache),
        memory_(memory),
        options_(options),
        next_use_(std::move(next_use)),
        clock_(clock) {}

  // From now on nobody waits for memory; waiting calls end.
  void Stop();
  bool is_stopping() const;

  // Null if it is on no tier.
  tier::ExtentRef Find(const tier::ExtentKey& key) const { return cache_.Find(key); }
  // Keys of a data set's extents on the tiers; a key on both tiers occurs twice.
  std::vector<tier::ExtentKey> KeysOf(std::uint64_t dataset) const;

  // A part of working_bytes, given back on destruction.
  class WorkingMemory {
   public:
    WorkingMemory(StagingTiers& tiers, std::list<Share>::iterator share)
        : tiers_(tiers), share_(share) {}
    ~WorkingMemory();
    WorkingMemory(const WorkingMemory&) = delete;
    WorkingMemory& operator=(const WorkingMemory&) = delete;

   private:
    StagingTiers& tiers_;
    const std::list<Share>::iterator share_;
  };
  // Waits until `bytes` of working_bytes are free; a load that is alone never waits. A load that
  // nobody waits for (`can_wait`, asked at each try) leaves space for one demanded load. Returns
  // early once the tiers are stopped.
  std::unique_ptr<WorkingMemory> AwaitWorkingMemory(std::uint64_t bytes,
                                                    const std::function<bool()>& can_wait);
  // A load has become more urgent: loads that wait for memory try again.
  void Hurried();
  // Lets other loads use as much memory as loads hold for longer than this, because the GFS does
  // not answer them (compare RequestGate::LendPlacesOf). So up to 2 x working_bytes are in use; the
  // second half comes from other extents of the RAM tier.
  void LendMemoryOf(std::int64_t longer_than_ns);

  // Allocates memory for an image. Extents that are evicted for it and are on no other tier are
  // written to SSD first, through `queue`, where SSD has space; `queue` must be idle. While all
  // other extents are in use or needed sooner, waits up to `wait_ms` and tries again whenever that
  // may have changed. Errors: kResourceExhausted; kCancelled.
  struct MemoryRequest {
    std::uint64_t bytes = 0;
    // The extent whose image it is: extents that are needed later may be evicted for it. Its next
    // use is looked up at each try, because a reader may ask for it meanwhile. Null: the memory is
    // for staging to work in (kNeededNow).
    const tier::ExtentKey* key = nullptr;
    // Extents that are needed equally soon stay, too.
    bool only_later = false;
    // Asked at each try: whether the image is needed now, as if `key` were null. Null: it is not.
    std::function<bool()> is_urgent = nullptr;
    std::int64_t wait_ms = limits::kMemoryWaitMs;
    // Evict guests only, because every extent at home in RAM has its own space (for staging).
    bool spares_homes = false;
  };
  Result<tier::ArenaBlock> Allocate(const MemoryRequest& request, io::IoQueue& queue);
  // Stores an extent on SSD; if SSD is not its home, only where nothing must be evicted for it.
  // True also if it was there already. False if the tier refuses it, which is logged once per
  // incident: the extent then goes remote.
  bool StoreOnSsd(const Dataset& dataset, const tier::ExtentKey& key, const ExtentImage& image,
                  bool is_home, io::IoQueue& queue);
  // Stores an extent in RAM; `is_guest`: its home is not RAM. Succeeds if it is there already.
  Status StoreInRam(const tier::ExtentKey& key, ExtentImage image, bool is_guest);
  // `tier` is the extent's home now. No effect if it is not there.
  void MakeAtHome(const tier::ExtentKey& key, tier::TierKind tier) {
    cache_.MakeAtHome(key, tier);
  }
  // Evicts from one tier, or from both if unset. No effect if it is not there.
  void Evict(const tier::ExtentKey& key, std::optional<tier::TierKind> tier) {
    static_cast<void>(cache_.Evict(key, tier));
  }
  // Copies an extent from RAM to SSD; no effect if it is there already.
  Status CopyToSsd(const tier::ResidentExtent& extent, io::IoQueue& queue);
  struct Promotion {
    bool is_guest = false;
    std::int64_t wait_ms = limits::kMemoryWaitMs;  // these two are MemoryRequest's
    bool spares_homes = false;
  };
  // Copies an extent from SSD to RAM and verifies it. kDataLoss: the copy on SSD is damaged.
  Status Promote(const tier::ResidentExtent& extent, const Promotion& promotion,
                 io::IoQueue& queue);

 private:
  tier::ExtentCache& cache_;
  tier::MemorySignal& memory_;
  const StagingTiersOptions options_;
  const tier::NextUse next_use_;
  io::Clock& clock_;
  mutable Mutex mutex_;
  CondVar working_ended_;
  std::list<Share> shares_ FOREBAY_GUARDED_BY(mutex_);  // held by loads, the oldest first
  // Sum of the shares that are not lent.
  std::uint64_t working_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t lent_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::atomic<bool> ssd_refuses_ = false;  // SSD refused the last extent
};

}  // namespace forebay::stage
