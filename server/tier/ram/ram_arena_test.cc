// Blocks of the arena: where they lie, what they do not overlap, and how they are moved and freed.
#include "server/tier/ram/ram_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "server/tier/testing/ram_arena_test_fixture.h"

namespace forebay::tier {
namespace {

using testing::kMiB;
using testing::kPage;
using testing::MakeArena;
using testing::TakeBlock;

TEST(RamArena, BlockLiesWhereItSays) {
  const auto arena = MakeArena({.capacity_bytes = 8 * kMiB,
                                .region_bytes = 2 * kMiB,
                                .first_region = RegionId(5)});
  ASSERT_EQ(arena->regions().size(), 4U);
  const ArenaBlock block = TakeBlock(*arena, 10'000);
  EXPECT_TRUE(block.valid());
  EXPECT_EQ(block.bytes().size(), 10'000U);
  EXPECT_EQ(block.region(), RegionId(5));
  EXPECT_EQ(block.region_offset() % kPage, 0U);
  EXPECT_EQ(block.bytes().data(), arena->regions()[0].bytes().data() + block.region_offset());
  EXPECT_EQ(arena->used_bytes(), 3 * kPage);
}

TEST(RamArena, DestructionGivesBackAndCoalesces) {
  const auto arena = MakeArena(2 * kMiB);
  {
    std::vector<ArenaBlock> blocks;
    for (int i = 0; i < 512; ++i) blocks.push_back(TakeBlock(*arena, 1));
    EXPECT_EQ(arena->used_bytes(), 2 * kMiB);
    EXPECT_EQ(arena->largest_free_bytes(), 0U);
    EXPECT_EQ(arena->Allocate(1).error().code(), ErrorCode::kResourceExhausted);
    for (std::size_t i = 0; i < blocks.size(); i += 2) blocks[i] = ArenaBlock();
    EXPECT_EQ(arena->used_bytes(), kMiB);
    EXPECT_EQ(arena->largest_free_bytes(), kPage);
  }
  EXPECT_EQ(arena->used_bytes(), 0U);
  EXPECT_EQ(arena->largest_free_bytes(), 2 * kMiB);
}

TEST(RamArena, MoveKeepsOneOwner) {
  const auto arena = MakeArena(2 * kMiB);
  ArenaBlock first = TakeBlock(*arena, kPage);
  ArenaBlock second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT: a moved-from block is empty by contract
  EXPECT_TRUE(second.valid());
  second = TakeBlock(*arena, 2 * kPage);
  EXPECT_EQ(arena->used_bytes(), 2 * kPage);
  ArenaBlock& alias = second;
  second = std::move(alias);
  EXPECT_TRUE(second.valid());
}

TEST(RamArena, TakesTheShortestRunThatFits) {
  const auto arena = MakeArena(2 * kMiB);
  ArenaBlock a = TakeBlock(*arena, 10 * kPage);
  const ArenaBlock wall1 = TakeBlock(*arena, kPage);
  ArenaBlock b = TakeBlock(*arena, 4 * kPage);
  const ArenaBlock wall2 = TakeBlock(*arena, kPage);
  const std::uint64_t offset_b = b.region_offset();
  a = ArenaBlock();
  b = ArenaBlock();
  const ArenaBlock small = TakeBlock(*arena, 3 * kPage);
  EXPECT_EQ(small.region_offset(), offset_b);
}

TEST(RamArena, BriefBlocksComeFromAboveAndLeaveOneRunBelow) {
  const auto arena = MakeArena({.capacity_bytes = 4 * kMiB,
                                .region_bytes = 2 * kMiB,
                                .lowest_first = true});
  ArenaBlock brief = TakeBlock(*arena, kPage + 1, Stay::kBrief);
  EXPECT_EQ(brief.region(), RegionId(1));
  EXPECT_EQ(brief.region_offset(), 2 * kMiB - 2 * kPage);
  const ArenaBlock below = TakeBlock(*arena, kPage, Stay::kBrief);
  EXPECT_EQ(below.region_offset(), 2 * kMiB - 3 * kPage);
  const ArenaBlock first = TakeBlock(*arena, kPage);
  EXPECT_EQ(first.region(), RegionId(0));
  EXPECT_EQ(first.region_offset(), 0U);
  brief = ArenaBlock();
  const ArenaBlock second = TakeBlock(*arena, 2 * kPage);
  EXPECT_EQ(second.region(), RegionId(0)) << "the hole above would be the shortest run that fits";
  EXPECT_EQ(second.region_offset(), kPage);
  const ArenaBlock longer = TakeBlock(*arena, 3 * kPage, Stay::kBrief);
  EXPECT_EQ(longer.region(), RegionId(1)) << "the highest run is too short for it";
  EXPECT_EQ(longer.region_offset(), 2 * kMiB - 6 * kPage);
  EXPECT_EQ(arena->Allocate(2 * kMiB, Stay::kBrief).error().code(),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(arena->Allocate(0, Stay::kBrief).error().code(), ErrorCode::kInvalidArgument);
}

TEST(RamArena, LowestFirstGoesOnInTheNextRegion) {
  const auto arena = MakeArena({.capacity_bytes = 3 * kMiB,
                                .region_bytes = 2 * kMiB,
                                .lowest_first = true});
  const ArenaBlock first = TakeBlock(*arena, kMiB + 1);
  EXPECT_EQ(first.region(), RegionId(0)) << "though the other region is shorter";
  const ArenaBlock second = TakeBlock(*arena, kMiB);
  EXPECT_EQ(second.region(), RegionId(1));
  const ArenaBlock third = TakeBlock(*arena, kPage);
  EXPECT_EQ(third.region(), RegionId(0));
  EXPECT_FALSE(arena->Allocate(kMiB).has_value());
}

TEST(RamArena, BlockMayFillARegionButNotCrossIt) {
  const auto arena = MakeArena(4 * kMiB, 2 * kMiB);
  const ArenaBlock first = TakeBlock(*arena, 2 * kMiB);
  const ArenaBlock second = TakeBlock(*arena, 2 * kMiB);
  EXPECT_NE(first.region(), second.region());
  EXPECT_EQ(arena->used_bytes(), arena->capacity_bytes());
  const auto other = MakeArena(4 * kMiB, 2 * kMiB);
  EXPECT_EQ(other->Allocate(2 * kMiB + 1).error().code(), ErrorCode::kResourceExhausted);
}

TEST(RamArena, CapacityIsWholePagesAndExact) {
  const auto arena = MakeArena(3 * kPage + 100, kMiB);
  EXPECT_EQ(arena->capacity_bytes(), 3 * kPage);
  EXPECT_EQ(arena->regions()[0].bytes().size(), 2 * kMiB);
  const ArenaBlock all = TakeBlock(*arena, 3 * kPage);
  EXPECT_FALSE(arena->Allocate(1).has_value());
}

TEST(RamArena, RefusesNonsense) {
  EXPECT_EQ(RamArena::Create({0, kMiB, RegionId(0)}).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(RamArena::Create({kMiB, 0, RegionId(0)}).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(RamArena::Create({5000 * kPage, kPage, RegionId(0)}).error().code(),
            ErrorCode::kInvalidArgument);
  const auto arena = MakeArena(kMiB);
  EXPECT_EQ(arena->Allocate(0).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(arena->Allocate(~std::uint64_t{0}).error().code(), ErrorCode::kResourceExhausted);
}

TEST(RamArena, SlidesABlockOverItsOwnPagesButOverNoOther) {
  const auto arena = MakeArena(2 * kMiB);
  ArenaBlock low = TakeBlock(*arena, 2 * kPage);
  const ArenaBlock wall = TakeBlock(*arena, kPage);
  ArenaBlock hole = TakeBlock(*arena, 2 * kPage);
  ArenaBlock block = TakeBlock(*arena, 3 * kPage);
  for (std::size_t i = 0; i < block.bytes().size(); ++i) {
    block.bytes()[i] = static_cast<std::byte>(i / kPage + 1);
  }
  low = ArenaBlock();
  hole = ArenaBlock();
  EXPECT_FALSE(arena->Slide(block, 0)) << "only two pages are free there";
  EXPECT_EQ(block.region_offset(), 5 * kPage);
  EXPECT_EQ(arena->used_bytes(), 4 * kPage);
  ASSERT_TRUE(arena->Slide(block, 3 * kPage));
  EXPECT_EQ(block.region_offset(), 3 * kPage);
  EXPECT_EQ(arena->used_bytes(), 4 * kPage);
  for (std::size_t i = 0; i < block.bytes().size(); ++i) {
    ASSERT_EQ(block.bytes()[i], static_cast<std::byte>(i / kPage + 1)) << i;
  }
  block = ArenaBlock();
  EXPECT_EQ(arena->largest_free_bytes(), 2 * kMiB - 3 * kPage) << "its pages are free again";
}

TEST(RamArenaDeathTest, DiesBeforeItsBlocksDangle) {
  EXPECT_DEATH(
      {
        ArenaBlock survivor;
        auto arena = MakeArena(kMiB);
        survivor = TakeBlock(*arena, 1);
        arena.reset();
      },
      "CHECK failed");
}

TEST(RamArena, ThreadsShareItWithoutOverlap) {
  const auto arena = MakeArena(16 * kMiB, 4 * kMiB);
  constexpr int kThreads = 4;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&arena, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t));
      std::vector<ArenaBlock> held;
      for (int i = 0; i < 2000; ++i) {
        if (held.size() > 20 || (!held.empty() && random() % 3 == 0)) {
          const std::size_t which = random() % held.size();
          for (const std::byte byte : held[which].bytes()) {
            ASSERT_EQ(byte, static_cast<std::byte>(t + 1));
          }
          std::swap(held[which], held.back());
          held.pop_back();
          continue;
        }
        Result<ArenaBlock> block = arena->Allocate(1 + random() % (8 * kPage));
        if (!block.has_value()) continue;
        std::memset(block->bytes().data(), t + 1, block->bytes().size());
        held.push_back(std::move(*block));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(arena->used_bytes(), 0U);
  EXPECT_EQ(arena->largest_free_bytes(), 4 * kMiB);
}

}  // namespace
}  // namespace forebay::tier
