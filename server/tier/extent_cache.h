// ExtentCache: which extents this node holds, on which tier, who uses them, and which are evicted
// when space is needed. The only owner of resident extents: `stage` adds them, `fetch` looks them
// up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/tier/eviction_search.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/resident_extent.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::tier {

class EvictionLedger;

// Thread-safe.
class ExtentCache {
 public:
  struct Options {
    // On SSD, eviction begins above `high` and ends below `low`, in permille of the capacity.
    std::uint32_t watermark_high_permille = 980;
    std::uint32_t watermark_low_permille = 940;
    // RAM is filled to the last page. When it is full, guests (PublishRam) that are needed later
    // than the new extent are evicted until no more than this is in use.
    std::uint32_t guests_low_permille = 940;
    const io::Clock* clock = nullptr;  // borrowed; null: the system's
    EvictionLedger* evictions = nullptr;  // borrowed; counts evictions; null: they are not counted
  };
  // `arena` is borrowed; `store` may be null (no SSD tier).
  static std::unique_ptr<ExtentCache> Create(RamArena& arena, SegmentStore* store,
                                             const Options& options, NextUse next_use);
  virtual ~ExtentCache() = default;

  // The extent on its fastest tier, or null. Counts a hit of that tier; misses are not counted.
  virtual ExtentRef Find(const ExtentKey& key) = 0;
  // Finds many extents under one lock; results[i] is Find(keys[i]).
  virtual void Find(std::span<const ExtentKey> keys, std::span<ExtentRef> results) = 0;
  // The copy on one tier, or null; not counted as a hit. For verification.
  virtual ExtentRef FindOn(const ExtentKey& key, TierKind tier) = 0;

  // Allocates memory to read an extent into. If free memory is fragmented, moves extents that
  // nobody uses. If there is too little, evicts the RAM extents that are needed last, but none that
  // is needed sooner than `next_use`; with `spares_homes` evicts guests only. With `queue`, which
  // must be idle, an evicted extent that is on no other tier is first written to SSD, if SSD has
  // space for it without an eviction. kResourceExhausted: all other extents are pinned or needed
  // sooner.
  virtual Result<ArenaBlock> AllocateRam(std::uint64_t bytes, std::uint64_t next_use,
                                         io::IoQueue* queue = nullptr,
                                         bool spares_homes = false) = 0;
  // Publishes an extent in RAM; kAlreadyExists if it is there already. `is_guest`: RAM is not its
  // home (server/stage); of extents that are needed equally soon, guests are evicted first. An
  // extent that is there as a guest is none any more if it is published with is_guest = false.
  virtual Result<ExtentRef> PublishRam(const ExtentKey& key, ArenaBlock block,
                                       ExtentChecksums checksums, bool is_guest = false) = 0;
  // `tier` is the extent's home now: it is no guest there any more. No effect if it is not there.
  // Extents that are on SSD from the start are guests until this is called.
  virtual void MakeAtHome(const ExtentKey& key, TierKind tier) = 0;
  // Writes an extent to SSD and publishes it; a RAM copy stays. If SSD is full, evicts extents
  // there that are needed later than `next_use`; of those needed equally soon, first copies of
  // extents at home in RAM, then guests, and no others. kFailedPrecondition: no SSD tier, or it is
  // retired.
  virtual Status PublishSsd(io::IoQueue& queue, const ExtentKey& key,
                            std::span<std::byte> image, const ExtentChecksums& checksums,
                            std::uint64_t next_use, bool is_guest = false) = 0;
  // Drops the extent from a tier, or from both if unset. kNotFound: it is not there. Pinned memory
  // is freed with the last pin. A copy that is being written to SSD does not appear there.
  virtual Status Evict(const ExtentKey& key, std::optional<TierKind> tier) = 0;
  // Call after a bad read of `extent`, in RAM or on SSD, which failed with `found`: drops this copy
  // and counts it. A copy that has replaced it since stays. An error with an errno on SSD is a
  // device error. Device errors for limits::kTierErrorsBeforeRetire extents within a minute retire
  // the SSD tier: nothing more is written to it, and its extents are still read. A checksum
  // mismatch is no device error.
  virtual void ReportBad(const ExtentRef& extent, const Error& found, std::int64_t now_ns) = 0;
  // Keys of the extents on `tier`.
  virtual std::vector<ExtentKey> Resident(TierKind tier) const = 0;

  struct TierStats {
    std::uint64_t capacity_bytes = 0, used_bytes = 0, extents = 0, evictions = 0, hits = 0;
    std::uint64_t pinned_bytes = 0;  // RAM: held by references outside the cache
    std::uint64_t bad_extents = 0;   // copies found damaged and dropped, whoever found them
    std::uint64_t device_errors = 0;  // SSD: calls that failed with a device error
    std::uint64_t spilled = 0;       // RAM: evicted extents that were written to SSD first
    std::uint64_t moved = 0;         // RAM: extents moved so that free memory is in one piece
    bool retired = false;            // SSD: nothing more is written to it
  };
  virtual TierStats stats(TierKind tier) const = 0;
};

}  // namespace forebay::tier
