// Compaction: which blocks of the RAM arena to move so that free memory is in one piece.
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

// A block that nobody uses now; it takes whole pages.
struct MovableBlock {
  RegionId region;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The block is to begin at `to` of its region. That is below where it is, and may overlap it.
struct Move {
  MovableBlock block;
  std::uint64_t to = 0;
};

// The moves, to be made in this order, after which a free run of at least `wanted_bytes` exists;
// empty where none are enough. Of all runs of neighbouring blocks and free memory in one region,
// chooses the one with the fewest bytes to move. O(n log n) in runs and blocks.
std::vector<Move> PlanMoves(const std::vector<FreeRun>& free, std::vector<MovableBlock> movable,
                            std::uint64_t wanted_bytes);

}  // namespace forebay::tier
