// StagingTiers: the tiers as staging uses them: memory for an image, which is waited for; an image
// put where it belongs; a copy of one that is there.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// The next use of what nobody has asked for: after all that was, but not never.
inline constexpr std::uint64_t kNotAskedFor = ~std::uint64_t{0} - 1;

// What is published of an extent.
struct ExtentImage {
  tier::ArenaBlock block;
  tier::ExtentChecksums checksums;
};

// Thread-safe.
class StagingTiers {
 public:
  // `cache` is borrowed. Without an SSD tier all goes to RAM.
  StagingTiers(tier::ExtentCache& cache, bool has_ssd, tier::NextUse next_use)
      : cache_(cache), has_ssd_(has_ssd), next_use_(std::move(next_use)) {}

  // From now on nobody waits for memory.
  void Stop();
  bool is_stopping() const;

  // Null where it is on no tier.
  tier::ExtentRef Find(const tier::ExtentKey& key) const { return cache_.Find(key); }
  std::uint64_t NextUseOf(const tier::ExtentKey& key) const { return next_use_(key); }

  // Memory for an image that is needed at `next_use`. It may be short for a moment while clients
  // hold views, and is waited for: limits::kMemoryWaitMs. kResourceExhausted; kCancelled.
  Result<tier::ArenaBlock> Allocate(std::uint64_t bytes, std::uint64_t next_use);
  // Stores an extent where it belongs. A tier that fails is a degraded tier, not a lost extent: the
  // other one takes it. Who was faster has stored the same.
  Status Publish(const Dataset& dataset, const tier::ExtentKey& key, plan::Home home,
                 ExtentImage image, io::IoQueue& queue);
  // A copy of what is on a tier. From SSD it is verified: kDataLoss.
  Result<tier::ArenaBlock> Read(const tier::ResidentExtent& extent, io::IoQueue& queue);
  // Of a tier, or of both; no effect where it is not there.
  void Evict(const tier::ExtentKey& key, std::optional<tier::TierKind> tier) {
    static_cast<void>(cache_.Evict(key, tier));
  }
  // Brings an extent from SSD up to RAM, verifying it on the way.
  Status Promote(const tier::ResidentExtent& extent, io::IoQueue& queue);

 private:
  Status PublishRam(const tier::ExtentKey& key, tier::ArenaBlock block,
                    tier::ExtentChecksums checksums);

  tier::ExtentCache& cache_;
  const bool has_ssd_;
  const tier::NextUse next_use_;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
};

}  // namespace forebay::stage
