// ExtentCache: which extents this node holds, on which tier, who uses them, and which are evicted
// when space is needed. The only owner of resident extents: `stage` adds them, `fetch` looks them
// up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/tier/eviction_ledger.h"
#include "server/tier/eviction_search.h"
#include "server/tier/extent_key.h"
#include "server/tier/extent_mover.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/resident_extent.h"
#include "server/tier/resident_index.h"
#include "server/tier/resident_walk.h"
#include "server/tier/ssd/device_health.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::tier {

// Thread-safe. A lookup never waits for work on all extents. These calls may block on the SSD, to
// open, write or remove a file: Find and FindOn of an extent on SSD that nobody holds, AllocateRam
// with a queue, PublishSsd, Evict and ReportBad. All references to extents must be gone before the
// cache is destroyed.
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
  // `arena` and `store` are borrowed; `store` may be null (no SSD tier).
  static std::unique_ptr<ExtentCache> Create(RamArena& arena, SegmentStore* store,
                                             const Options& options, NextUse next_use);

  // The extent on its fastest tier, or null.
  ExtentRef Find(const ExtentKey& key);
  // Finds many extents under one lock; results[i] is Find(keys[i]).
  void Find(std::span<const ExtentKey> keys, std::span<ExtentRef> results);
  // Whether the extent is on a tier.
  bool Holds(const ExtentKey& key) const;
  // The copy on one tier, or null. For verification.
  ExtentRef FindOn(const ExtentKey& key, TierKind tier);

  // Allocates memory to read an extent into. If free memory is fragmented, moves extents that
  // nobody uses. If there is too little, evicts the RAM extents that are needed last, but none that
  // is needed sooner than `next_use`; with `spares_homes` evicts guests only. With `queue`, which
  // must be idle, an evicted extent that is on no other tier is first written to SSD, if SSD has
  // space for it without an eviction. kResourceExhausted: all other extents are pinned or needed
  // sooner.
  Result<ArenaBlock> AllocateRam(std::uint64_t bytes, std::uint64_t next_use,
                                 io::IoQueue* queue = nullptr, bool spares_homes = false);
  // Moves extents that nobody uses until a block of `bytes` can be allocated, and blocks while it
  // copies; evicts nothing, and reserves nothing. False: that was not possible.
  bool MakeRun(std::uint64_t bytes);
  // Publishes an extent in RAM; kAlreadyExists if it is there already. `is_guest`: RAM is not its
  // home (server/stage); of extents that are needed equally soon, guests are evicted first. An
  // extent that is there as a guest is none any more if it is published with is_guest = false.
  Result<ExtentRef> PublishRam(const ExtentKey& key, ArenaBlock block, ExtentChecksums checksums,
                               bool is_guest = false);
  // `tier` is the extent's home now: it is no guest there any more. No effect if it is not there.
  // Extents that are on SSD from the start are guests until this is called.
  void MakeAtHome(const ExtentKey& key, TierKind tier);
  // Writes an extent to SSD and publishes it; a RAM copy stays. If SSD is full, evicts extents
  // there that are needed later than `next_use`; of those needed equally soon, first copies of
  // extents at home in RAM, then guests, and no others. kFailedPrecondition: no SSD tier, or it is
  // retired.
  Status PublishSsd(io::IoQueue& queue, const ExtentKey& key, std::span<std::byte> image,
                    const ExtentChecksums& checksums, std::uint64_t next_use,
                    bool is_guest = false);
  // Drops the extent from a tier, or from both if unset. kNotFound: it is not there. Pinned memory
  // is freed with the last pin. A copy that is being written to SSD does not appear there.
  Status Evict(const ExtentKey& key, std::optional<TierKind> tier);
  // Call after a bad read of `extent`, in RAM or on SSD, which failed with `found`: drops this copy
  // and counts it. A copy that has replaced it since stays. An error with an errno on SSD is a
  // device error. Device errors for limits::kTierErrorsBeforeRetire extents within a minute retire
  // the SSD tier: nothing more is written to it, and its extents are still read. A checksum
  // mismatch is no device error.
  void ReportBad(const ExtentRef& extent, const Error& found, std::int64_t now_ns);
  // Keys of the extents on `tier`.
  std::vector<ExtentKey> Resident(TierKind tier) const;

  struct TierStats {
    std::uint64_t capacity_bytes = 0, used_bytes = 0, extents = 0, evictions = 0;
    std::uint64_t pinned_bytes = 0;  // RAM: held by references outside the cache
    std::uint64_t bad_extents = 0;   // copies found damaged and dropped, whoever found them
    std::uint64_t device_errors = 0;  // SSD: calls that failed with a device error
    std::uint64_t spilled = 0;       // RAM: evicted extents that were written to SSD first
    std::uint64_t moved = 0;         // RAM: extents moved so that free memory is in one piece
    bool retired = false;            // SSD: nothing more is written to it
  };
  TierStats stats(TierKind tier) const;

 private:
  struct Counters {
    std::uint64_t evictions = 0;
    std::uint64_t extents = 0;
    std::uint64_t bad = 0;
  };
  using Candidate = EvictionSearch::Candidate;
  using Node = ResidentIndex::Node;
  using RamRef = std::shared_ptr<ResidentExtent>;

  ExtentCache(RamArena& arena, SegmentStore* store, const Options& options, NextUse next_use);

  Node* FindUnmoved(const ExtentKey& key) FOREBAY_REQUIRES(mutex_);
  ExtentRef FindResident(const ExtentKey& key, bool& must_open) FOREBAY_REQUIRES(mutex_);
  ExtentRef OpenFromSsd(const ExtentKey& key) FOREBAY_EXCLUDES(mutex_);
  bool CanSpillLocked(const ResidentExtent& extent) const FOREBAY_REQUIRES(mutex_);
  void EvictFromRam(const ExtentKey& key, io::IoQueue* queue) FOREBAY_EXCLUDES(mutex_);
  void AwaitNoSsdChange(const ExtentKey& key) FOREBAY_REQUIRES(mutex_);
  Status BeginSsdWrite(const ExtentKey& key, bool is_guest) FOREBAY_REQUIRES(mutex_);
  Status WriteSsd(io::IoQueue& queue, const ExtentKey& key, std::span<std::byte> image,
                  const ExtentChecksums& checksums, std::uint64_t next_use, bool is_guest)
      FOREBAY_EXCLUDES(mutex_);
  RamRef DropEvicted(Node& node) FOREBAY_REQUIRES(mutex_);
  RamRef DropRam(Node& node, EvictionCause cause) FOREBAY_REQUIRES(mutex_);
  bool DropSsd(Node& node, EvictionCause cause) FOREBAY_REQUIRES(mutex_);
  void CountInLedger(const Node& left, TierKind tier, EvictionCause cause);
  void EraseIfEmpty(const Node& node) FOREBAY_REQUIRES(mutex_);
  // False: the copy is gone, or somebody uses it.
  bool EvictFromSsd(const ExtentKey& key) FOREBAY_EXCLUDES(mutex_);
  Status MakeSsdRoom(std::uint64_t file_bytes, std::uint64_t next_use, bool for_guest)
      FOREBAY_EXCLUDES(mutex_);
  Status RemoveFromStore(const ExtentKey& key) FOREBAY_EXCLUDES(mutex_);
  void DropBadRam(const ExtentRef& extent) FOREBAY_EXCLUDES(mutex_);
  void DropBadSegment(const ResidentExtent& extent, const Error& found, std::int64_t now_ns)
      FOREBAY_EXCLUDES(mutex_);
  void CountBadSegment(const ExtentKey& key, const Error& found) FOREBAY_REQUIRES(mutex_);
  Counters& counters(TierKind tier) FOREBAY_REQUIRES(mutex_) {
    return counters_[static_cast<std::size_t>(tier)];
  }

  RamArena& arena_;
  SegmentStore* const store_;
  const Options options_;
  const io::SteadyClock system_clock_;
  const io::Clock& clock_;

  // Never held during I/O, nor while bytes are moved, nor while next uses are computed. While it is
  // held, the cache calls the eviction ledger and those functions of the store that do no I/O; each
  // may lock a mutex of its own, and none may call the cache.
  mutable Mutex mutex_;
  ResidentIndex index_ FOREBAY_GUARDED_BY(mutex_);
  const ResidentWalk walk_;
  const EvictionSearch search_;
  ExtentMover mover_;
  // Dropped extents whose files are not removed yet; extents that are being written to SSD, and
  // whether each of them has been evicted meanwhile.
  std::unordered_set<ExtentKey, ExtentKeyHash> removing_ FOREBAY_GUARDED_BY(mutex_);
  std::unordered_map<ExtentKey, bool, ExtentKeyHash> writing_ FOREBAY_GUARDED_BY(mutex_);
  // Writes of guests to SSD.
  std::uint64_t guests_begun_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t guests_ended_ FOREBAY_GUARDED_BY(mutex_) = 0;
  CondVar ssd_changed_;  // removing_, writing_ or guests_ended_
  Counters counters_[2] FOREBAY_GUARDED_BY(mutex_);
  DeviceHealth ssd_health_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t spilled_ FOREBAY_GUARDED_BY(mutex_) = 0;  // TierStats::spilled
};

}  // namespace forebay::tier
