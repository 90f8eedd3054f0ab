// StagingTiers: the tiers as staging uses them: memory for an image, which is waited for; an image
// put where it belongs; a copy of one that is there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// The next use of what nobody has asked for: after all that was, but not never.
inline constexpr std::uint64_t kNotAskedFor = ~std::uint64_t{0} - 1;
// Farther than that of any extent, so that none makes room for it.
inline constexpr std::uint64_t kEvictsNobody = ~std::uint64_t{0};
// The next use of memory that staging works in: whatever is needed farthest makes room for it.
inline constexpr std::uint64_t kNeededNow = 0;

// What is published of an extent.
struct ExtentImage {
  tier::ArenaBlock block;
  tier::ExtentChecksums checksums;
};

struct StagingTiersOptions {
  bool has_ssd = false;  // without an SSD tier all goes to RAM
  // Of the RAM tier, for extents on their way to SSD (the placer keeps it free of homes). 0: no
  // bound.
  std::uint64_t working_bytes = 0;
};

// Thread-safe.
class StagingTiers {
  // Of working_bytes, that a load holds.
  struct Share {
    std::uint64_t bytes = 0;
    std::int64_t since_ns = 0;
    bool is_lent = false;  // and so does not count any more
  };

 public:
  // `cache` and `clock` are borrowed.
  StagingTiers(tier::ExtentCache& cache, const StagingTiersOptions& options,
               tier::NextUse next_use, io::Clock& clock)
      : cache_(cache), options_(options), next_use_(std::move(next_use)), clock_(clock) {}

  // From now on nobody waits for memory.
  void Stop();
  bool is_stopping() const;

  // Null where it is on no tier.
  tier::ExtentRef Find(const tier::ExtentKey& key) const { return cache_.Find(key); }
  // What is resident of a data set, on either tier.
  std::vector<tier::ExtentKey> KeysOf(std::uint64_t dataset) const;
  std::uint64_t NextUseOf(const tier::ExtentKey& key) const { return next_use_(key); }

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
  // Waits until an extent of `bytes` may be in memory beside the others that are on their way to
  // SSD; one always may. A load in the background leaves room for one that is demanded. Returns
  // early once the tiers are stopped.
  std::unique_ptr<WorkingMemory> AwaitWorkingMemory(std::uint64_t bytes, bool is_background);
  // As RequestGate::LendPlacesOf: what loads hold for longer, because the GFS does not answer them,
  // is taken from the RAM tier's other extents, so that it keeps no others waiting. At most
  // working_bytes.
  void LendMemoryOf(std::int64_t longer_than_ns);

  // Memory for an image. Extents that make room for it and lie on no other tier are written to SSD
  // first, through `queue`, where that has room; `queue` must be idle. Memory may be short for a
  // moment while clients hold views, and is waited for. kResourceExhausted; kCancelled.
  struct MemoryWish {
    std::uint64_t bytes = 0;
    // Whose image it is: what is needed later makes room for it. That is asked again at each try,
    // for a reader may come for it meanwhile. Null: staging works in the memory (kNeededNow).
    const tier::ExtentKey* key = nullptr;
    std::int64_t wait_ms = limits::kMemoryWaitMs;
    // For staging: what has its home in RAM does not go for another that has, nor for one that only
    // passes through.
    bool spares_homes = false;
  };
  Result<tier::ArenaBlock> Allocate(const MemoryWish& wish, io::IoQueue& queue);
  // Stores an extent on SSD; without `is_home` only where nothing makes room for it. False where
  // the tier refuses it, which is said once: a tier that fails is a degraded tier, not a lost
  // extent. Who was faster has stored the same.
  bool StoreOnSsd(const Dataset& dataset, const tier::ExtentKey& key, const ExtentImage& image,
                  bool is_home, io::IoQueue& queue);
  // Stores an extent in RAM, as a guest where its home is not there.
  Status StoreInRam(const tier::ExtentKey& key, ExtentImage image, bool is_guest);
  // The extent is no guest on that tier any more; no effect where it is not there.
  void MakeAtHome(const tier::ExtentKey& key, tier::TierKind tier) {
    cache_.MakeAtHome(key, tier);
  }
  // Of a tier, or of both; no effect where it is not there.
  void Evict(const tier::ExtentKey& key, std::optional<tier::TierKind> tier) {
    static_cast<void>(cache_.Evict(key, tier));
  }
  // Copies an extent from RAM to SSD; no effect where it is there.
  Status CopyToSsd(const tier::ResidentExtent& extent, io::IoQueue& queue);
  struct Promotion {
    bool is_guest = false;
    bool spares_homes = false;  // MemoryWish's
  };
  // Copies an extent from SSD up to RAM, verifying it on the way: kDataLoss.
  Status Promote(const tier::ResidentExtent& extent, const Promotion& promotion,
                 io::IoQueue& queue);

 private:
  tier::ExtentCache& cache_;
  const StagingTiersOptions options_;
  const tier::NextUse next_use_;
  io::Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  std::condition_variable working_ended_;
  std::list<Share> shares_;          // of loads under way to SSD, the oldest first
  std::uint64_t working_bytes_ = 0;  // of them, without those that are lent
  std::uint64_t lent_bytes_ = 0;
  bool stopping_ = false;
  std::atomic<bool> ssd_refuses_ = false;  // the last extent for it
};

}  // namespace forebay::stage
