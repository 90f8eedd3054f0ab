// RamArena: allocates page-aligned blocks, for extents of the `ram` tier or for slots of
// minibatches. All regions are created at the start and never change, so that a client maps them
// once, when it connects. The cache, the stager and the batch scheduler allocate from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/tier/ram/compaction.h"
#include "server/tier/ram/huge_pages.h"
#include "server/tier/ram/memory_signal.h"
#include "server/tier/ram/page_runs.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::tier {

class PopulateAhead;
class RamArena;

// A block of the arena. Destruction frees it, on any thread. Move-only. The arena must outlive it
// (the arena's destructor checks that no block is left). Its address and its offset in the region
// are multiples of the page size, and the padding up to the next page belongs to it.
class ArenaBlock {
 public:
  ArenaBlock() = default;
  ArenaBlock(ArenaBlock&& other) noexcept;
  ArenaBlock& operator=(ArenaBlock&& other) noexcept;
  ~ArenaBlock();

  bool valid() const { return arena_ != nullptr; }
  std::span<std::byte> bytes() const { return bytes_; }  // the requested size, without padding
  RegionId region() const { return region_; }
  std::uint64_t region_offset() const { return region_offset_; }

 private:
  friend class RamArena;
  ArenaBlock(RamArena& arena, RegionId region, std::uint64_t region_offset,
             std::span<std::byte> bytes)
      : arena_(&arena), region_(region), region_offset_(region_offset), bytes_(bytes) {}

  RamArena* arena_ = nullptr;
  RegionId region_;
  std::uint64_t region_offset_ = 0;
  std::span<std::byte> bytes_;
};

// How long a block is kept. Brief blocks are taken from the upper end, so that they leave no holes
// between the others; PopulateAhead does not count them.
enum class Stay : std::uint8_t { kLong, kBrief };

// Thread-safe. Best fit over runs of free pages (PageRuns): run k of region r is the same run of
// pages of memfd r. A block never crosses regions. No call waits for memory. The pages of a block
// are made huge by the thread that asks for the block, before it has it (HugePages).
class RamArena {
 public:
  struct Options {
    std::uint64_t capacity_bytes = 0;  // rounded down to whole pages of 4 KiB
    std::uint64_t region_bytes = std::uint64_t{1} << 30;  // size of one memfd
    RegionId first_region = RegionId();  // ids of the regions: this one, the next one, ...
    // True: take the lowest free run that fits, so that pages are reused. False: best fit.
    bool lowest_first = false;
    // How much memory beyond the blocks is populated in advance, so that nobody waits for the first
    // touch of a page (PopulateAhead). 0: pages are populated when they are touched.
    std::uint64_t populate_ahead_bytes = 0;
    // Populate from the start on. False: once there is a block.
    bool populate_at_start = false;
    HugePageUse huge_pages = HugePageUse::kTransparent;
  };
  // Makes all regions. kInvalidArgument: the capacity or a region is less than a page, or there
  // would be more than limits::kRegionCountMax regions. Other errors: SharedRegion::Create.
  static Result<std::unique_ptr<RamArena>> Create(const Options& options);
  // Checks that no block is left: it would later write to unmapped memory and call a destroyed
  // arena.
  ~RamArena();

  // kInvalidArgument: `bytes` is 0. kResourceExhausted: no free run is long enough.
  Result<ArenaBlock> Allocate(std::uint64_t bytes, Stay stay = Stay::kLong);
  // Moves a block of this arena, with its bytes, to `offset` of its region, which is below its
  // present offset (checked). False, and no change: the target is not free; the block's own pages
  // count as free. Nobody else may use the block during the call; other calls do not wait for it.
  bool Slide(ArenaBlock& block, std::uint64_t offset);
  // A snapshot: other threads may take and free pages before the caller looks at it.
  std::vector<FreeRun> FreeRuns() const;
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  std::uint64_t used_bytes() const;  // padding included
  std::uint64_t largest_free_bytes() const;
  std::span<const SharedRegion> regions() const { return regions_; }
  // Threads that wait for memory of this arena wait for this signal. It is notified whenever a
  // block was freed.
  MemorySignal& memory_signal() { return memory_signal_; }
  // For tests: waits until the memory ahead is populated, or the kernel has refused that.
  void DrainPopulation();
  std::uint64_t populated_ahead_bytes() const;
  PageCounts page_counts() const { return pages_.counts(); }

 private:
  friend class ArenaBlock;  // which calls Free

  // The sizes in `options` are multiples of the page size.
  RamArena(const Options& options, std::vector<SharedRegion> regions);

  void Free(const ArenaBlock& block);
  std::optional<PageRuns::Run> TakeLocked(std::uint64_t pages, Stay stay) FOREBAY_REQUIRES(mutex_);
  Error Full(std::uint64_t bytes, const char* why) const;

  MemorySignal memory_signal_;
  const RegionId first_region_;
  const std::uint64_t capacity_bytes_;
  const bool lowest_first_;
  const std::vector<SharedRegion> regions_;
  HugePages pages_;
  mutable Mutex mutex_;  // no bytes of a block are touched while it is held
  PageRuns runs_ FOREBAY_GUARDED_BY(mutex_);
  std::unique_ptr<PopulateAhead> ahead_;  // may be null; destroyed before the regions it uses
};

}  // namespace forebay::tier
