// Memory that an arena hands out to nobody: never touched, and never more than there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>
#include <vector>

#include "server/tier/ram_arena_test_fixture.h"

namespace forebay::tier {
namespace {

using ::testing::HasSubstr;
using testing::kMiB;
using testing::MakeArena;
using testing::TakeBlock;

// Bytes that the kernel has made for the arena's regions, whoever touched them.
std::uint64_t MadeBytes(const RamArena& arena) {
  std::uint64_t blocks = 0;
  for (const SharedRegion& region : arena.regions()) {
    struct stat facts = {};
    EXPECT_EQ(::fstat(region.fd(), &facts), 0);
    blocks += static_cast<std::uint64_t>(facts.st_blocks);
  }
  return blocks * 512;
}

void Touch(const ArenaBlock& block) {
  std::memset(block.bytes().data(), 0x5A, block.bytes().size());
}

WithheldMemory Withhold(RamArena& arena, std::uint64_t bytes) {
  return io::testing::Take(arena.Withhold(bytes));
}

TEST(RamArenaWithhold, BlocksAndWhatIsWithheldNeverTakeMoreThanTheCapacity) {
  const auto arena = MakeArena(16 * kMiB);
  ArenaBlock touched = TakeBlock(*arena, 5 * kMiB);
  Touch(touched);
  WithheldMemory withheld = Withhold(*arena, 7 * kMiB);
  EXPECT_EQ(withheld.bytes(), 8 * kMiB) << "whole huge pages";
  EXPECT_EQ(arena->withheld_bytes(), 8 * kMiB);
  EXPECT_EQ(arena->capacity_bytes(), 8 * kMiB);
  EXPECT_EQ(arena->used_bytes(), 5 * kMiB);
  EXPECT_EQ(arena->untouched_bytes(), 2 * kMiB) << "the block ends within a huge page";
  EXPECT_EQ(arena->Allocate(3 * kMiB + 1).error().code(), ErrorCode::kResourceExhausted);
  const ArenaBlock rest = TakeBlock(*arena, 3 * kMiB);
  Touch(rest);
  EXPECT_FALSE(arena->Allocate(1).has_value());
  EXPECT_LE(MadeBytes(*arena) + withheld.bytes(), 16 * kMiB);
  withheld = WithheldMemory();
  EXPECT_EQ(arena->capacity_bytes(), 16 * kMiB);
  Touch(TakeBlock(*arena, 8 * kMiB));
  EXPECT_EQ(MadeBytes(*arena), 16 * kMiB);
}

TEST(RamArenaWithhold, WhatWasTouchedOnceIsNeverWithheld) {
  const auto arena = MakeArena({.capacity_bytes = 12 * kMiB,
                                .region_bytes = 8 * kMiB,
                                .lowest_first = true});
  // Brief blocks come from above: the upper end is not what was never touched.
  Touch(TakeBlock(*arena, kMiB, Stay::kBrief));
  Touch(TakeBlock(*arena, 3 * kMiB));
  EXPECT_EQ(arena->used_bytes(), 0U) << "all is free";
  EXPECT_EQ(arena->untouched_bytes(), 6 * kMiB);
  const Result<WithheldMemory> refused = arena->Withhold(6 * kMiB + 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("only 6291456 were never touched"));
  EXPECT_EQ(arena->capacity_bytes(), 12 * kMiB) << "nothing is withheld then";
  const WithheldMemory withheld = Withhold(*arena, 6 * kMiB);
  EXPECT_EQ(arena->untouched_bytes(), 0U);
  // All that may still be handed out, in both regions.
  const ArenaBlock low = TakeBlock(*arena, 4 * kMiB);
  const ArenaBlock high = TakeBlock(*arena, 2 * kMiB);
  Touch(low);
  Touch(high);
  EXPECT_EQ(low.region(), RegionId(0));
  EXPECT_EQ(high.region(), RegionId(1));
  EXPECT_FALSE(arena->Allocate(1).has_value());
  EXPECT_EQ(MadeBytes(*arena) + withheld.bytes(), 12 * kMiB);
}

TEST(RamArenaWithhold, WhatAnotherProcessMadeIsNotWithheld) {
  const auto arena = MakeArena(8 * kMiB);
  // A client that reads where no block lies makes pages, too.
  const SharedRegion& region = arena->regions()[0];
  const auto* mapped = static_cast<const volatile std::byte*>(
      ::mmap(nullptr, 8 * kMiB, PROT_READ, MAP_SHARED, region.fd(), 0));
  ASSERT_NE(mapped, MAP_FAILED);
  const std::byte read = mapped[5 * kMiB];
  EXPECT_EQ(read, std::byte{0});
  EXPECT_GT(MadeBytes(*arena), 0U);
  EXPECT_EQ(arena->untouched_bytes(), 6 * kMiB);
  const WithheldMemory withheld = Withhold(*arena, 6 * kMiB);
  EXPECT_EQ(TakeBlock(*arena, 2 * kMiB).region_offset(), 4 * kMiB);
  EXPECT_EQ(::munmap(const_cast<std::byte*>(mapped), 8 * kMiB), 0);
}

TEST(RamArenaWithhold, AHugePageThatABlockEndsInIsNotWithheld) {
  const auto arena = MakeArena(4 * kMiB);
  const ArenaBlock block = TakeBlock(*arena, 2 * kMiB + 1);  // not touched yet, but it will be
  EXPECT_EQ(arena->untouched_bytes(), 0U);
  EXPECT_EQ(arena->Withhold(1).error().code(), ErrorCode::kResourceExhausted);
}

TEST(RamArenaWithhold, MemoryMadeAheadEndsWhereItBegins) {
  const auto arena = MakeArena({.capacity_bytes = 16 * kMiB,
                                .region_bytes = 16 * kMiB,
                                .populate_ahead_bytes = 6 * kMiB});
  WithheldMemory withheld = Withhold(*arena, 12 * kMiB);
  ArenaBlock block = TakeBlock(*arena, 2 * kMiB);
  arena->DrainPopulation();
  EXPECT_LE(MadeBytes(*arena), 4 * kMiB);
  withheld = WithheldMemory();
  block = ArenaBlock();
  block = TakeBlock(*arena, 3 * kMiB);
  // Counts as touched from now on, whether the thread has come to it or not.
  EXPECT_EQ(arena->untouched_bytes(), 6 * kMiB) << "9 MiB, in whole steps";
  arena->DrainPopulation();
  withheld = Withhold(*arena, 6 * kMiB);
  EXPECT_LE(MadeBytes(*arena) + withheld.bytes(), 16 * kMiB);
}

TEST(RamArenaWithhold, WhatFreedBlocksHaveTouchedIsNotWithheld) {
  const auto arena = MakeArena(64 * kMiB);
  std::vector<ArenaBlock> blocks;
  for (int i = 0; i < 256; ++i) blocks.push_back(TakeBlock(*arena, kMiB / 4));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Touch(blocks[i]);
    if (i % 2 == 0) blocks[i] = ArenaBlock();
  }
  EXPECT_EQ(arena->Withhold(1).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(arena->untouched_bytes(), 0U);
}

TEST(RamArenaWithhold, WhatIsGivenBackMayBeMadeByOthersMeanwhile) {
  const auto arena = MakeArena(8 * kMiB);
  WithheldMemory withheld = Withhold(*arena, 8 * kMiB);
  arena->regions()[0].bytes()[3 * kMiB] = std::byte{1};
  withheld = WithheldMemory();
  EXPECT_EQ(arena->untouched_bytes(), 6 * kMiB);
  withheld = Withhold(*arena, 6 * kMiB);
  EXPECT_EQ(TakeBlock(*arena, 2 * kMiB).region_offset(), 2 * kMiB);
}

TEST(RamArenaWithhold, ManyAreGivenBackInAnyOrder) {
  const auto arena = MakeArena(32 * kMiB, 8 * kMiB);
  std::vector<WithheldMemory> withheld;
  for (int i = 0; i < 5; ++i) withheld.push_back(Withhold(*arena, 6 * kMiB));
  EXPECT_EQ(arena->capacity_bytes(), 2 * kMiB);
  EXPECT_FALSE(arena->Withhold(2 * kMiB + 1).has_value());
  std::swap(withheld[0], withheld[3]);
  withheld.resize(2);
  EXPECT_EQ(arena->withheld_bytes(), 12 * kMiB);
  withheld[0] = std::move(withheld[1]);
  EXPECT_EQ(withheld[0].bytes(), 6 * kMiB);
  EXPECT_EQ(withheld[1].bytes(), 0U);  // NOLINT: moved from, empty by contract
  withheld.clear();
  EXPECT_EQ(arena->capacity_bytes(), 32 * kMiB);
  EXPECT_EQ(arena->largest_free_bytes(), 8 * kMiB);
  EXPECT_EQ(MadeBytes(*arena), 0U) << "withholding touches nothing";
}

TEST(RamArenaWithhold, HostileSizesAreRefused) {
  const auto arena = MakeArena(4 * kMiB);
  EXPECT_EQ(arena->Withhold(0).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(arena->Withhold(4 * kMiB + 1).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(arena->Withhold(~std::uint64_t{0}).error().code(), ErrorCode::kResourceExhausted);
  const WithheldMemory all = Withhold(*arena, 4 * kMiB);
  EXPECT_EQ(arena->capacity_bytes(), 0U);
  const Result<ArenaBlock> none = arena->Allocate(1);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message(), HasSubstr("(4194304 more withheld)"));
}

}  // namespace
}  // namespace forebay::tier
