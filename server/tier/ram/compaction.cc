// A sliding window over the sorted pieces of a region finds, for each free run, the shortest group
// of adjacent pieces that ends with it and has enough free memory. Of these groups the one with the
// fewest bytes in blocks is chosen; its blocks slide down, which joins the free memory at its end.
#include "server/tier/ram/compaction.h"

#include <algorithm>
#include <cstddef>

#include "proto/contract/align_up.h"
#include "proto/contract/limits.h"

namespace forebay::tier {
namespace {

// A free run or a movable block.
struct Piece {
  RegionId region;
  std::uint64_t offset = 0;
  std::uint64_t pages_bytes = 0;  // whole pages
  std::uint64_t bytes = 0;        // as asked for
  bool is_free = false;

  std::uint64_t end() const { return offset + pages_bytes; }
};

// The group of pieces [first, last): its blocks slide down, its free memory is joined at the end.
struct Window {
  std::size_t first = 0, last = 0;
  std::uint64_t moved_bytes = ~std::uint64_t{0};
};

// Lists the moves from low to high addresses, so that the target of each is free when it is made.
// Blocks below the first free run of the window need not move.
std::vector<Move> Slide(const std::vector<Piece>& pieces, const Window& window) {
  std::vector<Move> moves;
  std::uint64_t to = pieces[window.first].offset;
  for (std::size_t i = window.first; i < window.last; ++i) {
    const Piece& piece = pieces[i];
    if (piece.is_free) continue;
    if (piece.offset != to) {
      moves.push_back({.block = {.region = piece.region, .offset = piece.offset,
                                 .bytes = piece.bytes},
                       .to = to});
    }
    to += piece.pages_bytes;
  }
  return moves;
}

}  // namespace

std::vector<Move> PlanMoves(const std::vector<FreeRun>& free, std::vector<MovableBlock> movable,
                            std::uint64_t wanted_bytes) {
  std::vector<Piece> pieces;
  for (const FreeRun& run : free) {
    pieces.push_back({run.region, run.offset, run.bytes, run.bytes, true});
  }
  for (const MovableBlock& block : movable) {
    pieces.push_back({block.region, block.offset,
                      AlignUp(block.bytes, limits::kIoAlignmentBytes), block.bytes, false});
  }
  std::ranges::sort(pieces, [](const Piece& a, const Piece& b) {
    return a.region != b.region ? a.region < b.region : a.offset < b.offset;
  });
  // For each piece, the shortest window that ends with it. It begins and ends with free memory: a
  // block at either end would be moved, or stay, without joining anything.
  Window best;
  std::size_t first = 0;
  std::uint64_t free_bytes = 0, block_bytes = 0;
  for (std::size_t last = 0; last < pieces.size(); ++last) {
    const Piece& piece = pieces[last];
    // A gap between two pieces is a block that must not move, so no window contains it.
    const bool is_neighbour = last > 0 && pieces[last - 1].region == piece.region &&
                              pieces[last - 1].end() == piece.offset;
    if (!is_neighbour) {
      first = last;
      free_bytes = block_bytes = 0;
    }
    (piece.is_free ? free_bytes : block_bytes) += piece.pages_bytes;
    // Drop leading blocks, and leading free runs without which enough memory is free.
    while (first < last) {
      const Piece& leading = pieces[first];
      if (leading.is_free && free_bytes - leading.pages_bytes < wanted_bytes) break;
      (leading.is_free ? free_bytes : block_bytes) -= leading.pages_bytes;
      ++first;
    }
    if (piece.is_free && free_bytes >= wanted_bytes && block_bytes < best.moved_bytes) {
      best = {.first = first, .last = last + 1, .moved_bytes = block_bytes};
    }
  }
  return best.last == 0 ? std::vector<Move>() : Slide(pieces, best);
}

}  // namespace forebay::tier
