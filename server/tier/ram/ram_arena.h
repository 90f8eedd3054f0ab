// RamArena: the `ram` tier's memory, cut into page-aligned blocks for extents. Regions are made
// once, at start, so that every client can be told of all of them when it connects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/tier/ram/compaction.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::tier {

class RamArena;

// A block of the arena; given back on destruction, on any thread. Move-only. The arena must
// outlive it (the arena's destructor checks that no block is left). Addresses, and offsets in
// the region, are page-aligned, and the padding up to the next page belongs to the block.
class ArenaBlock {
 public:
  ArenaBlock() = default;
  ArenaBlock(ArenaBlock&& other) noexcept;
  ArenaBlock& operator=(ArenaBlock&& other) noexcept;
  ~ArenaBlock();

  bool valid() const { return arena_ != nullptr; }
  std::span<std::byte> bytes() const { return bytes_; }  // as asked for, without the padding
  RegionId region() const { return region_; }
  std::uint64_t region_offset() const { return region_offset_; }

 private:
  friend class RamArena;
  RamArena* arena_ = nullptr;
  RegionId region_;
  std::uint64_t region_offset_ = 0;
  std::span<std::byte> bytes_;
};

// How long a block stays. Brief ones come from the upper end, so that they leave no hole between
// those that stay; no memory is made ahead for them.
enum class Stay : std::uint8_t { kLong, kBrief };

// Thread-safe. Allocation is over free page runs and coalesces on return; a block never crosses
// regions.
class RamArena {
 public:
  struct Options {
    std::uint64_t capacity_bytes = 0;  // rounded down to whole pages of 4 KiB
    std::uint64_t region_bytes = std::uint64_t{1} << 30;  // of one memfd
    RegionId first_region = RegionId();  // the ids of this arena's regions: this one, +1, ...
    // Blocks lie as far down as they fit; else in the shortest free run that fits them.
    bool lowest_first = false;
    // Memory that is made before it is allocated, so that nobody waits for its first touch
    // (PopulateAhead); within the regions. 0: pages are made as they are touched.
    std::uint64_t populate_ahead_bytes = 0;
    // From the start on, where the first block may be waited for; else once there is a block.
    bool populate_at_start = false;
  };
  static Result<std::unique_ptr<RamArena>> Create(const Options& options);
  virtual ~RamArena() = default;

  // kResourceExhausted where no free run is long enough; never blocks.
  Result<ArenaBlock> Allocate(std::uint64_t bytes, Stay stay = Stay::kLong) {
    return DoAllocate(bytes, stay);
  }
  // Moves a block of this arena, with its bytes, to begin at `offset` of its region: all of that
  // is free memory or its own, or it is a bug. Nobody else may use the block meanwhile.
  virtual void Slide(ArenaBlock& block, std::uint64_t offset) = 0;
  virtual std::vector<FreeRun> FreeRuns() const = 0;
  virtual std::uint64_t capacity_bytes() const = 0;
  virtual std::uint64_t used_bytes() const = 0;       // padding included
  virtual std::uint64_t largest_free_bytes() const = 0;
  virtual std::span<const SharedRegion> regions() const = 0;
  // Blocks until the memory ahead is there (or refused): for tests. At once without any.
  virtual void DrainPopulation() = 0;
  virtual std::uint64_t populated_ahead_bytes() const = 0;

 protected:
  friend class ArenaBlock;
  virtual Result<ArenaBlock> DoAllocate(std::uint64_t bytes, Stay stay) = 0;
  virtual void Free(const ArenaBlock& block) = 0;
  // For implementations to fill a block (ArenaBlock's members are theirs alone).
  ArenaBlock MakeBlock(RegionId region, std::uint64_t offset, std::span<std::byte> bytes);
  static void Rebind(ArenaBlock& block, std::uint64_t offset, std::span<std::byte> bytes);
};

}  // namespace forebay::tier
