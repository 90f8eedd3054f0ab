#include "server/tier/ram_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "server/tier/page_runs.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMiB = 1 << 20;

std::unique_ptr<RamArena> Make(const RamArena::Options& options) {
  Result<std::unique_ptr<RamArena>> arena = RamArena::Create(options);
  if (!arena.has_value()) {
    ADD_FAILURE() << arena.error().ToString();
    std::abort();
  }
  return std::move(*arena);
}

ArenaBlock Take(RamArena& arena, std::uint64_t bytes, Stay stay = Stay::kLong) {
  Result<ArenaBlock> block = arena.Allocate(bytes, stay);
  if (!block.has_value()) {
    ADD_FAILURE() << block.error().ToString();
    std::abort();
  }
  return std::move(*block);
}

TEST(RamArena, BlockLiesWhereItSays) {
  const auto arena = Make({8 * kMiB, 2 * kMiB, RegionId(5)});
  ASSERT_EQ(arena->regions().size(), 4U);
  const ArenaBlock block = Take(*arena, 10'000);
  EXPECT_TRUE(block.valid());
  EXPECT_EQ(block.bytes().size(), 10'000U);
  EXPECT_EQ(block.region(), RegionId(5));
  EXPECT_EQ(block.region_offset() % kPage, 0U);
  EXPECT_EQ(block.bytes().data(), arena->regions()[0].bytes().data() + block.region_offset());
  EXPECT_EQ(arena->used_bytes(), 3 * kPage);
}

TEST(RamArena, DestructionGivesBackAndCoalesces) {
  const auto arena = Make({2 * kMiB, 2 * kMiB, RegionId(0)});
  {
    std::vector<ArenaBlock> blocks;
    for (int i = 0; i < 512; ++i) blocks.push_back(Take(*arena, 1));
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
  const auto arena = Make({2 * kMiB, 2 * kMiB, RegionId(0)});
  ArenaBlock first = Take(*arena, kPage);
  ArenaBlock second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT: a moved-from block is empty by contract
  EXPECT_TRUE(second.valid());
  second = Take(*arena, 2 * kPage);
  EXPECT_EQ(arena->used_bytes(), 2 * kPage);
  ArenaBlock& alias = second;
  second = std::move(alias);
  EXPECT_TRUE(second.valid());
}

TEST(RamArena, TakesTheShortestRunThatFits) {
  const auto arena = Make({2 * kMiB, 2 * kMiB, RegionId(0)});
  ArenaBlock a = Take(*arena, 10 * kPage);
  const ArenaBlock wall1 = Take(*arena, kPage);
  ArenaBlock b = Take(*arena, 4 * kPage);
  const ArenaBlock wall2 = Take(*arena, kPage);
  const std::uint64_t offset_b = b.region_offset();
  a = ArenaBlock();
  b = ArenaBlock();
  const ArenaBlock small = Take(*arena, 3 * kPage);
  EXPECT_EQ(small.region_offset(), offset_b);
}

TEST(RamArena, BriefBlocksComeFromAboveAndLeaveOneRunBelow) {
  const auto arena = Make({.capacity_bytes = 4 * kMiB,
                           .region_bytes = 2 * kMiB,
                           .first_region = RegionId(0),
                           .lowest_first = true});
  ArenaBlock brief = Take(*arena, kPage + 1, Stay::kBrief);
  EXPECT_EQ(brief.region(), RegionId(1));
  EXPECT_EQ(brief.region_offset(), 2 * kMiB - 2 * kPage);
  const ArenaBlock below = Take(*arena, kPage, Stay::kBrief);
  EXPECT_EQ(below.region_offset(), 2 * kMiB - 3 * kPage);
  const ArenaBlock first = Take(*arena, kPage);
  EXPECT_EQ(first.region(), RegionId(0));
  EXPECT_EQ(first.region_offset(), 0U);
  brief = ArenaBlock();
  const ArenaBlock second = Take(*arena, 2 * kPage);
  EXPECT_EQ(second.region(), RegionId(0)) << "the hole above would be the shortest run that fits";
  EXPECT_EQ(second.region_offset(), kPage);
  const ArenaBlock longer = Take(*arena, 3 * kPage, Stay::kBrief);
  EXPECT_EQ(longer.region(), RegionId(1)) << "the highest run is too short for it";
  EXPECT_EQ(longer.region_offset(), 2 * kMiB - 6 * kPage);
  EXPECT_EQ(arena->Allocate(2 * kMiB, Stay::kBrief).error().code(),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(arena->Allocate(0, Stay::kBrief).error().code(), ErrorCode::kInvalidArgument);
}

TEST(RamArena, LowestFirstGoesOnInTheNextRegion) {
  const auto arena = Make({.capacity_bytes = 3 * kMiB,
                           .region_bytes = 2 * kMiB,
                           .first_region = RegionId(0),
                           .lowest_first = true});
  const ArenaBlock first = Take(*arena, kMiB + 1);
  EXPECT_EQ(first.region(), RegionId(0)) << "though the other region is shorter";
  const ArenaBlock second = Take(*arena, kMiB);
  EXPECT_EQ(second.region(), RegionId(1));
  const ArenaBlock third = Take(*arena, kPage);
  EXPECT_EQ(third.region(), RegionId(0));
  EXPECT_FALSE(arena->Allocate(kMiB).has_value());
}

TEST(RamArena, BlockMayFillARegionButNotCrossIt) {
  const auto arena = Make({4 * kMiB, 2 * kMiB, RegionId(0)});
  const ArenaBlock first = Take(*arena, 2 * kMiB);
  const ArenaBlock second = Take(*arena, 2 * kMiB);
  EXPECT_NE(first.region(), second.region());
  EXPECT_EQ(arena->used_bytes(), arena->capacity_bytes());
  const auto other = Make({4 * kMiB, 2 * kMiB, RegionId(0)});
  EXPECT_EQ(other->Allocate(2 * kMiB + 1).error().code(), ErrorCode::kResourceExhausted);
}

TEST(RamArena, CapacityIsWholePagesAndExact) {
  const auto arena = Make({3 * kPage + 100, kMiB, RegionId(0)});
  EXPECT_EQ(arena->capacity_bytes(), 3 * kPage);
  EXPECT_EQ(arena->regions()[0].bytes().size(), 2 * kMiB);
  const ArenaBlock all = Take(*arena, 3 * kPage);
  EXPECT_FALSE(arena->Allocate(1).has_value());
}

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
  Result<WithheldMemory> withheld = arena.Withhold(bytes);
  if (!withheld.has_value()) {
    ADD_FAILURE() << withheld.error().ToString();
    std::abort();
  }
  return std::move(*withheld);
}

TEST(RamArenaWithhold, BlocksAndWhatIsWithheldNeverTakeMoreThanTheCapacity) {
  const auto arena = Make({16 * kMiB, 16 * kMiB, RegionId(0)});
  ArenaBlock touched = Take(*arena, 5 * kMiB);
  Touch(touched);
  WithheldMemory withheld = Withhold(*arena, 7 * kMiB);
  EXPECT_EQ(withheld.bytes(), 8 * kMiB) << "whole huge pages";
  EXPECT_EQ(arena->withheld_bytes(), 8 * kMiB);
  EXPECT_EQ(arena->capacity_bytes(), 8 * kMiB);
  EXPECT_EQ(arena->used_bytes(), 5 * kMiB);
  EXPECT_EQ(arena->untouched_bytes(), 2 * kMiB) << "the block ends within a huge page";
  EXPECT_EQ(arena->Allocate(3 * kMiB + 1).error().code(), ErrorCode::kResourceExhausted);
  const ArenaBlock rest = Take(*arena, 3 * kMiB);
  Touch(rest);
  EXPECT_FALSE(arena->Allocate(1).has_value());
  EXPECT_LE(MadeBytes(*arena) + withheld.bytes(), 16 * kMiB);
  withheld = WithheldMemory();
  EXPECT_EQ(arena->capacity_bytes(), 16 * kMiB);
  Touch(Take(*arena, 8 * kMiB));
  EXPECT_EQ(MadeBytes(*arena), 16 * kMiB);
}

TEST(RamArenaWithhold, WhatWasTouchedOnceIsNeverWithheld) {
  const auto arena = Make({.capacity_bytes = 12 * kMiB,
                           .region_bytes = 8 * kMiB,
                           .first_region = RegionId(0),
                           .lowest_first = true});
  // Brief blocks come from above: the upper end is not what was never touched.
  Touch(Take(*arena, kMiB, Stay::kBrief));
  Touch(Take(*arena, 3 * kMiB));
  EXPECT_EQ(arena->used_bytes(), 0U) << "all is free";
  EXPECT_EQ(arena->untouched_bytes(), 6 * kMiB);
  const Result<WithheldMemory> refused = arena->Withhold(6 * kMiB + 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("only 6291456 were never touched"));
  EXPECT_EQ(arena->capacity_bytes(), 12 * kMiB) << "nothing is withheld then";
  const WithheldMemory withheld = Withhold(*arena, 6 * kMiB);
  EXPECT_EQ(arena->untouched_bytes(), 0U);
  // All that may still be handed out, in both regions.
  const ArenaBlock low = Take(*arena, 4 * kMiB);
  const ArenaBlock high = Take(*arena, 2 * kMiB);
  Touch(low);
  Touch(high);
  EXPECT_EQ(low.region(), RegionId(0));
  EXPECT_EQ(high.region(), RegionId(1));
  EXPECT_FALSE(arena->Allocate(1).has_value());
  EXPECT_EQ(MadeBytes(*arena) + withheld.bytes(), 12 * kMiB);
}

TEST(RamArenaWithhold, WhatAnotherProcessMadeIsNotWithheld) {
  const auto arena = Make({8 * kMiB, 8 * kMiB, RegionId(0)});
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
  EXPECT_EQ(Take(*arena, 2 * kMiB).region_offset(), 4 * kMiB);
  EXPECT_EQ(::munmap(const_cast<std::byte*>(mapped), 8 * kMiB), 0);
}

TEST(RamArenaWithhold, AHugePageThatABlockEndsInIsNotWithheld) {
  const auto arena = Make({4 * kMiB, 4 * kMiB, RegionId(0)});
  const ArenaBlock block = Take(*arena, 2 * kMiB + 1);  // not touched yet, but it will be
  EXPECT_EQ(arena->untouched_bytes(), 0U);
  EXPECT_EQ(arena->Withhold(1).error().code(), ErrorCode::kResourceExhausted);
}

TEST(RamArenaWithhold, MemoryMadeAheadEndsWhereItBegins) {
  const auto arena = Make({.capacity_bytes = 16 * kMiB,
                           .region_bytes = 16 * kMiB,
                           .first_region = RegionId(0),
                           .populate_ahead_bytes = 6 * kMiB});
  WithheldMemory withheld = Withhold(*arena, 12 * kMiB);
  ArenaBlock block = Take(*arena, 2 * kMiB);
  arena->DrainPopulation();
  EXPECT_LE(MadeBytes(*arena), 4 * kMiB);
  withheld = WithheldMemory();
  block = ArenaBlock();
  block = Take(*arena, 3 * kMiB);
  // Counts as touched from now on, whether the thread has come to it or not.
  EXPECT_EQ(arena->untouched_bytes(), 6 * kMiB) << "9 MiB, in whole steps";
  arena->DrainPopulation();
  withheld = Withhold(*arena, 6 * kMiB);
  EXPECT_LE(MadeBytes(*arena) + withheld.bytes(), 16 * kMiB);
}

TEST(RamArenaWithhold, ManyAreGivenBackInAnyOrder) {
  const auto arena = Make({32 * kMiB, 8 * kMiB, RegionId(0)});
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
  const auto arena = Make({4 * kMiB, 4 * kMiB, RegionId(0)});
  EXPECT_EQ(arena->Withhold(0).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(arena->Withhold(4 * kMiB + 1).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(arena->Withhold(~std::uint64_t{0}).error().code(), ErrorCode::kResourceExhausted);
  const WithheldMemory all = Withhold(*arena, 4 * kMiB);
  EXPECT_EQ(arena->capacity_bytes(), 0U);
  const Result<ArenaBlock> none = arena->Allocate(1);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message(), testing::HasSubstr("(4194304 more withheld)"));
}

TEST(RamArena, RefusesNonsense) {
  EXPECT_EQ(RamArena::Create({0, kMiB, RegionId(0)}).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(RamArena::Create({kMiB, 0, RegionId(0)}).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(RamArena::Create({5000 * kPage, kPage, RegionId(0)}).error().code(),
            ErrorCode::kInvalidArgument);
  const auto arena = Make({kMiB, kMiB, RegionId(0)});
  EXPECT_EQ(arena->Allocate(0).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(arena->Allocate(~std::uint64_t{0}).error().code(), ErrorCode::kResourceExhausted);
}

TEST(RamArenaDeathTest, DiesBeforeItsBlocksDangle) {
  EXPECT_DEATH(
      {
        ArenaBlock survivor;
        auto arena = Make({kMiB, kMiB, RegionId(0)});
        survivor = Take(*arena, 1);
        arena.reset();
      },
      "CHECK failed");
}

TEST(RamArena, ThreadsShareItWithoutOverlap) {
  const auto arena = Make({16 * kMiB, 4 * kMiB, RegionId(0)});
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

// The model: one flag a page, searched from the start.
class PageModel {
 public:
  explicit PageModel(std::vector<std::uint64_t> regions) {
    for (const std::uint64_t pages : regions) used_.emplace_back(pages, false);
  }
  struct Best {
    std::size_t region = 0;
    std::uint64_t first = 0, length = 0;
  };
  enum class From { kShortest, kLowest, kHighest };
  // Where `pages` start: at the start of the shortest run that is long enough (of equals the
  // lowest) or of the lowest, or at the end of the highest.
  std::optional<Best> Find(std::uint64_t pages, From from) const {
    std::optional<Best> best;
    ForEachRun([&](const Best& run) {
      if (run.length < pages) return;
      const bool better = from == From::kHighest ||
                          (from == From::kShortest && best && run.length < best->length);
      if (!best || better) best = run;
    });
    if (best && from == From::kHighest) best->first += best->length - pages;
    return best;
  }
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    for (std::size_t region = 0; region < used_.size(); ++region) {
      const std::vector<bool>& pages = used_[region];
      for (std::size_t i = 0; i < pages.size();) {
        std::size_t end = i;
        while (end < pages.size() && !pages[end]) ++end;
        if (end > i) visit(Best{region, i, end - i});
        i = std::max(end, i + 1);
      }
    }
  }
  void Set(const PageRuns::Run& run, bool used) {
    for (std::uint64_t i = 0; i < run.pages; ++i) {
      ASSERT_NE(used_[run.region][run.first_page + i], used);
      used_[run.region][run.first_page + i] = used;
    }
  }

 private:
  std::vector<std::vector<bool>> used_;
};

TEST(PageRuns, AgreesWithAModelOfOneFlagPerPage) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::vector<std::uint64_t> regions = {64, 100, 1, 33};
    PageRuns runs;
    for (const std::uint64_t pages : regions) runs.AddRegion(pages);
    PageModel model(regions);
    std::vector<PageRuns::Run> held;
    for (int step = 0; step < 1500; ++step) {
      if (!held.empty() && random() % 2 == 0) {
        std::swap(held[random() % held.size()], held.back());
        runs.Give(held.back());
        model.Set(held.back(), false);
        held.pop_back();
      } else {
        const std::uint64_t pages = 1 + random() % (random() % 8 == 0 ? 64 : 9);
        using From = PageModel::From;
        const auto from = static_cast<From>(random() % 3);
        const auto expected = model.Find(pages, from);
        const auto taken = from == From::kShortest ? runs.Take(pages)
                           : from == From::kLowest ? runs.TakeLowest(pages)
                                                   : runs.TakeHighest(pages);
        ASSERT_EQ(taken.has_value(), expected.has_value());
        if (taken) {
          ASSERT_EQ(taken->region, expected->region);
          ASSERT_EQ(taken->first_page, expected->first);
          ASSERT_EQ(taken->pages, pages);
          model.Set(*taken, true);
          held.push_back(*taken);
        }
      }
      std::uint64_t free_pages = 0, longest = 0, count = 0;
      model.ForEachRun([&](const PageModel::Best& run) {
        free_pages += run.length;
        longest = std::max(longest, run.length);
        ++count;
      });
      ASSERT_EQ(runs.free_pages(), free_pages);
      ASSERT_EQ(runs.longest_run_pages(), longest);
      ASSERT_EQ(runs.run_count(), count);  // equal only where neighbours are joined
    }
  }
}

TEST(PageRuns, TheseVeryPagesAreTakenOutOfTheirRun) {
  PageRuns runs;
  runs.AddRegion(5);
  runs.AddRegion(10);
  runs.TakeAt({1, 3, 4});
  using Runs = std::map<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(runs.free_runs(0), (Runs{{0, 5}}));
  EXPECT_EQ(runs.free_runs(1), (Runs{{0, 3}, {7, 3}}));
  EXPECT_EQ(runs.free_pages(), 11U);
  EXPECT_EQ(runs.longest_run_pages(), 5U);
  runs.TakeAt({1, 0, 3});
  runs.TakeAt({1, 9, 1});
  EXPECT_EQ(runs.free_runs(1), (Runs{{7, 2}}));
  runs.Give({1, 3, 4});
  runs.Give({1, 9, 1});
  runs.Give({1, 0, 3});
  EXPECT_EQ(runs.run_count(), 2U) << "joined again";
}

TEST(PageRunsDeathTest, TakingWhatIsTakenIsFound) {
  PageRuns runs;
  runs.AddRegion(10);
  runs.TakeAt({0, 4, 2});
  EXPECT_DEATH(runs.TakeAt({0, 5, 1}), "CHECK failed");
  EXPECT_DEATH(runs.TakeAt({0, 3, 2}), "CHECK failed");
  EXPECT_DEATH(runs.TakeAt({0, 9, 2}), "CHECK failed");
  EXPECT_DEATH(runs.TakeAt({1, 0, 1}), "CHECK failed");
}

TEST(PageRunsDeathTest, GivingBackTwiceIsFound) {
  PageRuns runs;
  runs.AddRegion(10);
  const auto run = runs.Take(4);
  ASSERT_TRUE(run.has_value());
  runs.Give(*run);
  EXPECT_DEATH(runs.Give(*run), "CHECK failed");
  EXPECT_DEATH(runs.Give({0, 8, 3}), "CHECK failed");
  EXPECT_DEATH(runs.Give({1, 0, 1}), "CHECK failed");
}

}  // namespace
}  // namespace forebay::tier
