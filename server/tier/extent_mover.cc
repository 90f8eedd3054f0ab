// Free runs and movable extents are listed without a lock that is held throughout, so the two lists
// are not of one moment. Therefore each move checks that its block still lies there unused and that
// its target is still free, and the first move that cannot be made ends the plan.
#include "server/tier/extent_mover.h"

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace forebay::tier {
namespace {

// Returns a number that identifies a block among those of all regions. The order of these numbers
// means nothing.
std::uint64_t Address(RegionId region, std::uint64_t offset) {
  return (std::uint64_t{region.value()} << 48) | offset;
}

}  // namespace

bool ExtentMover::MakeRun(std::uint64_t wanted) {
  const MutexLock one_plan(plan_mutex_);
  // Another thread may have made it while this one waited.
  if (arena_.largest_free_bytes() >= wanted) return true;
  // No moves help if all free memory together is too little.
  const std::uint64_t used = arena_.used_bytes();
  if (wanted > arena_.capacity_bytes() - used) return false;
  std::vector<MovableBlock> movable;
  std::unordered_map<std::uint64_t, ExtentKey> owners;  // by address
  walk_.VisitAll([&](const ResidentIndex::Node& node) {
    const std::shared_ptr<ResidentExtent>& ram = node.second.ram;
    if (!ram || ram->IsPinned()) return;
    movable.push_back({.region = ram->block.region(),
                       .offset = ram->block.region_offset(),
                       .bytes = ram->block.bytes().size()});
    owners.emplace(Address(ram->block.region(), ram->block.region_offset()), node.first);
  });
  const std::vector<Move> moves = PlanMoves(arena_.FreeRuns(), std::move(movable), wanted);
  for (const Move& move : moves) {
    if (!MakeMove(move, owners.at(Address(move.block.region, move.block.offset)))) return false;
  }
  return !moves.empty();
}

// Moves the extent `key` if it still lies where `move` says and nobody uses it.
bool ExtentMover::MakeMove(const Move& move, const ExtentKey& key) {
  std::shared_ptr<ResidentExtent> moving;
  ExtentRef pin;  // so that nobody else evicts or moves it
  {
    const MutexLock lock(mutex_);
    ResidentIndex::Node* const found = index_.Find(key);
    if (found == nullptr || !found->second.ram || found->second.ram->IsPinned()) return false;
    const ArenaBlock& block = found->second.ram->block;
    if (block.region() != move.block.region || block.region_offset() != move.block.offset ||
        block.bytes().size() != move.block.bytes) {
      return false;
    }
    moving = found->second.ram;
    pin = moving;
    // Readers that look the extent up from now on wait (AwaitMove).
    found->second.is_moving = true;
  }
  const bool is_moved = arena_.Slide(moving->block, move.to);
  {
    const MutexLock lock(mutex_);
    // The extent may have been dropped meanwhile, on request. Another one under the same key is not
    // moved at this time, because plan_mutex_ is held.
    ResidentIndex::Node* const found = index_.Find(key);
    if (found != nullptr) found->second.is_moving = false;
  }
  moved_ += is_moved ? 1 : 0;
  move_ended_.NotifyAll();
  return is_moved;
}

}  // namespace forebay::tier
