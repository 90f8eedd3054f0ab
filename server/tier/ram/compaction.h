// Compaction: plans which blocks of the RAM arena to move so that fragmented free memory becomes
// one run that is large enough. ExtentCache makes the moves (RamArena::Slide) before it evicts.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/ids.h"

namespace forebay::tier {

// Free memory between blocks, in whole pages.
struct FreeRun {
  RegionId region;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// A block that nobody uses now and that may be moved; it takes whole pages.
struct MovableBlock {
  RegionId region;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Move `block` to the offset `to` of its region, which is below its present offset. The two ranges
// may overlap.
struct Move {
  MovableBlock block;
  std::uint64_t to = 0;
};

// Returns moves after which a free run of at least `wanted_bytes` exists, if the lists are true;
// they must be made in this order. Empty if no moves achieve that. Of all sequences of adjacent
// blocks and free runs in one region, chooses the one with the fewest bytes to move. O(n log n) in
// runs and blocks.
std::vector<Move> PlanMoves(const std::vector<FreeRun>& free, std::vector<MovableBlock> movable,
                            std::uint64_t wanted_bytes);

}  // namespace forebay::tier
