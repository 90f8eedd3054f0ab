// ExtentCache: which extents this node holds, on which tier, who uses them, and which goes
// when room is needed. The only owner of resident extents: `stage` adds, `fetch` looks up.
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
#include "server/tier/extent_key.h"
#include "server/tier/piece_source.h"
#include "server/tier/ram_arena.h"
#include "server/tier/segment_store.h"

namespace forebay::tier {

class EvictionLedger;

// The cache holds extents on kRam and kSsd.
enum class TierKind : std::uint8_t { kRam = 0, kSsd = 1, kGfs = 2 };

// An extent that this node holds or, where `tier` is kGfs, knows how to read in pieces. Immutable;
// a shared_ptr to it is a pin: memory and file stay until the last reference is gone, whatever the
// cache decides meanwhile.
struct ResidentExtent {
  ExtentKey key;
  TierKind tier = TierKind::kRam;
  std::uint64_t image_bytes = 0;
  ArenaBlock block;                        // kRam: the image
  ExtentChecksums checksums;               // kRam, kGfs; for kSsd see segment->checksums
  std::shared_ptr<const Segment> segment;  // kSsd
  std::shared_ptr<const PieceSource> source = nullptr;  // kGfs

  const ExtentChecksums& sums() const { return segment ? segment->checksums : checksums; }
};
using ExtentRef = std::shared_ptr<const ResidentExtent>;

// When an extent is needed next, as a number to compare (smaller is sooner, ~0 never). Asked
// under the cache's lock; must not call back into it.
using NextUse = std::function<std::uint64_t(const ExtentKey&)>;

// Thread-safe.
class ExtentCache {
 public:
  struct Options {
    // On SSD eviction begins above `high` and ends below `low`, in permille of the capacity.
    std::uint32_t watermark_high_permille = 980;
    std::uint32_t watermark_low_permille = 940;
    // RAM is filled to the last page. Where that does not suffice, guests (PublishRam) that are
    // needed farther than the newcomer are evicted until no more than this is in use.
    std::uint32_t guests_low_permille = 940;
    const io::Clock* clock = nullptr;  // borrowed; null: the system's
    EvictionLedger* evictions = nullptr;  // borrowed; counts what leaves a tier; null: nobody does
  };
  // `arena` is borrowed; `store` may be null (no SSD tier).
  static std::unique_ptr<ExtentCache> Create(RamArena& arena, SegmentStore* store,
                                             const Options& options, NextUse next_use);
  virtual ~ExtentCache() = default;

  // The extent on its fastest tier, or null. Counts a hit or a miss of no tier.
  virtual ExtentRef Find(const ExtentKey& key) = 0;
  // Many at once under one lock; results[i] is Find(keys[i]).
  virtual void Find(std::span<const ExtentKey> keys, std::span<ExtentRef> results) = 0;
  // The copy on one tier, or null; not counted as a use. For verification.
  virtual ExtentRef FindOn(const ExtentKey& key, TierKind tier) = 0;

  // Memory to read an extent into, evicting RAM extents by farthest next use where needed.
  // kResourceExhausted where everything evictable is pinned or needed sooner than `next_use`.
  // Extents that nobody uses are moved together where free memory lies in too many pieces. With
  // `queue`, which must be idle, an evicted extent that lies on no other tier is written to SSD
  // first, where that has room without evicting anything. With `spares_homes` nothing is evicted
  // but guests, as there is room for all that is at home.
  virtual Result<ArenaBlock> AllocateRam(std::uint64_t bytes, std::uint64_t next_use,
                                         io::IoQueue* queue = nullptr,
                                         bool spares_homes = false) = 0;
  // Publishes an extent in RAM. Replaces nothing: kAlreadyExists where it is resident in RAM. Of
  // extents that are needed equally soon, a guest (whose home is not RAM) is evicted first; what
  // is published as none is one no more.
  virtual Result<ExtentRef> PublishRam(const ExtentKey& key, ArenaBlock block,
                                       ExtentChecksums checksums, bool is_guest = false) = 0;
  // The extent on that tier is no guest there any more; no effect where it is not there. What lies
  // on SSD from the start is a guest until then.
  virtual void MakeAtHome(const ExtentKey& key, TierKind tier) = 0;
  // Writes an extent to SSD and publishes it; the RAM copy, if any, stays. Evicts there what is
  // needed later; of what is needed equally soon, first copies of what is at home in RAM, then
  // guests, and nothing else. kFailedPrecondition where there is no SSD tier or it is retired.
  virtual Status PublishSsd(io::IoQueue& queue, const ExtentKey& key,
                            std::span<std::byte> image, const ExtentChecksums& checksums,
                            std::uint64_t next_use, bool is_guest = false) = 0;
  // Drops the extent from a tier (both where unset). kNotFound. Pinned memory is freed later.
  virtual Status Evict(const ExtentKey& key, std::optional<TierKind> tier) = 0;
  // After a bad read, which ended with `found`: drops the SSD copy, counts it and logs it. Bytes
  // that do not match their checksum are a lost copy and nothing else. An error of the device (it
  // has an errno) counts against it: limits::kTierErrorsBeforeRetire of them within a minute, of as
  // many extents, retire the SSD tier: nothing more is written; what is there is still read.
  virtual void ReportBadSegment(const ExtentKey& key, const Error& found,
                                std::int64_t now_ns) = 0;
  // The RAM copy was found damaged: drops it, and counts it.
  virtual void ReportBadRam(const ExtentKey& key) = 0;
  // Keys resident on `tier`.
  virtual std::vector<ExtentKey> Resident(TierKind tier) const = 0;

  struct TierStats {
    std::uint64_t capacity_bytes = 0, used_bytes = 0, extents = 0, evictions = 0, hits = 0;
    std::uint64_t pinned_bytes = 0;  // RAM: held by references outside the cache
    std::uint64_t bad_extents = 0;   // copies found damaged and dropped, whoever found them
    std::uint64_t device_errors = 0;  // SSD: calls that the device failed
    std::uint64_t spilled = 0;       // RAM: evicted extents that were written to SSD for it
    std::uint64_t moved = 0;         // RAM: extents moved so that free memory is in one piece
    bool retired = false;            // SSD: nothing more is written to it
  };
  virtual TierStats stats(TierKind tier) const = 0;
};

}  // namespace forebay::tier
