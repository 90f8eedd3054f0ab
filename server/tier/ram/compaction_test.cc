// PlanMoves: after the moves there is a run of the wanted length, and nothing overlaps.
#include "server/tier/ram/compaction.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::tier::compaction_test {

constexpr std::uint64_t kPage = 4096;

FreeRun Free(std::uint64_t page, std::uint64_t pages, std::uint32_t region = 0) {
  return {.region = RegionId(region), .offset = page * kPage, .bytes = pages * kPage};
}
MovableBlock Block(std::uint64_t page, std::uint64_t pages, std::uint32_t region = 0) {
  return {.region = RegionId(region), .offset = page * kPage, .bytes = pages * kPage - 100};
}

TEST(CompactionTest, SlidesTheBlockBetweenTwoHoles) {
  const auto moves = PlanMoves({Free(0, 2), Free(5, 2)}, {Block(2, 3)}, 4 * kPage);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].block.offset, 2 * kPage);
  EXPECT_EQ(moves[0].to, 0U);
}

TEST(CompactionTest, MovesTheFewestBytes) {
  // Joining the holes on the left moves 5 pages, those on the right one.
  const auto moves = PlanMoves({Free(0, 2), Free(7, 2), Free(10, 2)}, {Block(2, 5), Block(9, 1)},
                               4 * kPage);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].block.offset, 9 * kPage);
  EXPECT_EQ(moves[0].to, 7 * kPage);
}

TEST(CompactionTest, NothingIsMovedOverAPinnedBlockOrToAnotherRegion) {
  // Pages 2 to 4 belong to a block that somebody uses: it is in neither list.
  EXPECT_TRUE(PlanMoves({Free(0, 2), Free(5, 2)}, {}, 4 * kPage).empty());
  EXPECT_TRUE(PlanMoves({Free(0, 2, 0), Free(3, 2, 1)}, {Block(0, 3, 1)}, 4 * kPage).empty());
  EXPECT_TRUE(PlanMoves({}, {}, kPage).empty());
}

// Page maps drawn at random: a page belongs to a free run, a movable or a pinned block.
TEST(CompactionTest, EveryPlanMakesTheRunAndKeepsBlocksApart) {
  std::mt19937_64 random(7);
  int planned = 0, impossible = 0;
  for (int round = 0; round < 3000; ++round) {
    constexpr std::uint64_t kPages = 40;
    std::vector<FreeRun> free;
    std::vector<MovableBlock> movable;
    std::vector<int> owner(kPages, -2);  // -1 free, -2 pinned, else the number of a block
    for (std::uint64_t page = 0; page < kPages;) {
      const std::uint64_t length = std::min<std::uint64_t>(1 + random() % 5, kPages - page);
      const std::uint64_t kind = random() % 5;
      const bool after_free = page > 0 && owner[page - 1] == -1;
      if (kind < 2 && !after_free) {
        free.push_back(Free(page, length));
        std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(page), length, -1);
      } else if (kind < 4) {
        std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(page), length,
                    static_cast<int>(movable.size()));
        movable.push_back(Block(page, length));
      }
      page += length;
    }
    const std::uint64_t wanted = 1 + random() % 12;
    // Free pages of each stretch without a pinned page: what can be joined.
    std::uint64_t joinable = 0, stretch = 0;
    for (const int page : owner) {
      stretch = page == -2 ? 0 : stretch + (page == -1 ? 1 : 0);
      joinable = std::max(joinable, stretch);
    }
    const bool exists = std::ranges::any_of(
        free, [&](const FreeRun& run) { return run.bytes >= wanted * kPage; });
    if (exists) continue;  // nobody asks then
    const auto moves = PlanMoves(free, movable, wanted * kPage);
    ASSERT_EQ(moves.empty(), joinable < wanted) << "round " << round;
    (moves.empty() ? impossible : planned) += 1;
    for (const Move& move : moves) {
      const auto pages = static_cast<std::ptrdiff_t>((move.block.bytes + kPage - 1) / kPage);
      const auto from = static_cast<std::ptrdiff_t>(move.block.offset / kPage);
      const auto to = static_cast<std::ptrdiff_t>(move.to / kPage);
      ASSERT_LT(to, from);
      const int number = owner[static_cast<std::size_t>(from)];
      ASSERT_GE(number, 0);
      std::fill_n(owner.begin() + from, pages, -1);
      for (std::ptrdiff_t page = to; page < to + pages; ++page) {
        ASSERT_EQ(owner[static_cast<std::size_t>(page)], -1) << "round " << round;
        owner[static_cast<std::size_t>(page)] = number;
      }
    }
    if (moves.empty()) continue;
    std::uint64_t longest = 0, run = 0;
    for (const int page : owner) {
      run = page == -1 ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    ASSERT_GE(longest, wanted) << "round " << round;
  }
  EXPECT_GT(planned, 200);
  EXPECT_GT(impossible, 200);
}

}  // namespace forebay::tier::compaction_test
