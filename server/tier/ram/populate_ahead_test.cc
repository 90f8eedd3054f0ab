// Pages are populated beyond what is used, once, and not where the kernel refuses. mincore says
// which pages exist.
#include "server/tier/ram/populate_ahead.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/tier/ram/ram_arena.h"

namespace forebay::tier::populate_ahead_test {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kStep = PopulateAhead::kStepBytes;

std::vector<SharedRegion> Regions(std::initializer_list<std::uint64_t> sizes) {
  std::vector<SharedRegion> regions;
  for (const std::uint64_t bytes : sizes) {
    Result<SharedRegion> region = SharedRegion::Create("populate-test", bytes);
    if (!region.has_value()) {
      ADD_FAILURE() << region.error().ToString();
      std::abort();
    }
    regions.push_back(std::move(*region));
  }
  return regions;
}

// Bytes of the region that memory exists for.
std::uint64_t ResidentBytes(const SharedRegion& region) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(region.bytes().size() / page);
  EXPECT_EQ(::mincore(region.bytes().data(), region.bytes().size(), pages.data()), 0);
  return page * static_cast<std::uint64_t>(
                    std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; }));
}

bool KernelPopulates() {
  auto regions = Regions({kStep});
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, kStep);
  ahead.Reach(0, 0);
  ahead.Drain();
  return ahead.populated_bytes() > 0;
}

class PopulateAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!KernelPopulates()) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE";
  }
};

TEST_F(PopulateAheadTest, NothingExistsBeforeSomethingIsReached) {
  auto regions = Regions({8 * kMiB, 8 * kMiB});
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 4 * kMiB);
  ahead.Drain();
  EXPECT_EQ(ahead.populated_bytes(), 0U);
  EXPECT_EQ(ResidentBytes(regions[0]), 0U);
}

TEST_F(PopulateAheadTest, WhatLiesAheadExistsAndNoMore) {
  auto regions = Regions({16 * kMiB, 16 * kMiB});
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 4 * kMiB);
  ahead.Reach(1, 0);
  ahead.Drain();
  EXPECT_EQ(ResidentBytes(regions[0]), 0U);
  EXPECT_EQ(ResidentBytes(regions[1]), 4 * kMiB);
  EXPECT_EQ(ahead.populated_bytes(), 4 * kMiB);
}

TEST_F(PopulateAheadTest, IsRefilledOnceHalfIsGone) {
  auto regions = Regions({32 * kMiB});
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 8 * kMiB);
  ahead.Reach(0, 0);
  ahead.Drain();
  ahead.Reach(0, 4 * kMiB - 1);
  ahead.Drain();
  EXPECT_EQ(ahead.populated_bytes(), 8 * kMiB);
  ahead.Reach(0, 4 * kMiB);
  ahead.Drain();
  EXPECT_EQ(ahead.populated_bytes(), 12 * kMiB);
  EXPECT_EQ(ResidentBytes(regions[0]), 12 * kMiB);
}

TEST_F(PopulateAheadTest, WhatIsInUseIsLeftToItsUser) {
  auto regions = Regions({32 * kMiB});
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 4 * kMiB);
  ahead.Reach(0, 10 * kMiB + 1);
  ahead.Drain();
  EXPECT_EQ(ResidentBytes(regions[0]), 6 * kMiB) << "from 10 MiB on, in whole steps";
}

TEST_F(PopulateAheadTest, StopsAtTheEndOfTheRegion) {
  auto regions = Regions({6 * kMiB});
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 64 * kMiB);
  ahead.Reach(0, 0);
  ahead.Reach(0, 6 * kMiB);
  ahead.Drain();
  EXPECT_EQ(ahead.populated_bytes(), 6 * kMiB);
}

TEST_F(PopulateAheadTest, BytesInUseKeepTheirValue) {
  auto regions = Regions({8 * kMiB});
  std::memset(regions[0].bytes().data(), 0x5A, 3 * kMiB);
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 8 * kMiB);
  ahead.Reach(0, 0);
  ahead.Drain();
  EXPECT_EQ(ResidentBytes(regions[0]), 8 * kMiB);
  const auto bytes = regions[0].bytes().first(3 * kMiB);
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0x5A}; }));
}

TEST_F(PopulateAheadTest, ARefusalEndsTheWork) {
  auto regions = Regions({8 * kMiB});
  // Memory that may not be written is what the kernel refuses to populate for writing.
  ASSERT_EQ(::mprotect(regions[0].bytes().data(), 8 * kMiB, PROT_READ), 0);
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 4 * kMiB);
  ahead.Reach(0, 0);
  ahead.Drain();
  EXPECT_EQ(ahead.populated_bytes(), 0U);
  ASSERT_EQ(::mprotect(regions[0].bytes().data(), 8 * kMiB, PROT_READ | PROT_WRITE), 0);
  ahead.Reach(0, 4 * kMiB);
  ahead.Drain();
  EXPECT_EQ(ahead.populated_bytes(), 0U) << "it does not try again";
}

// The kernel holds the lock of the address space for it, and other threads must not wait for a
// thread that gets no processor.
TEST_F(PopulateAheadTest, ItsThreadHasThePriorityOfAllOthers) {
  auto regions = Regions({8 * kMiB});
  HugePages pages(regions, HugePageUse::kTransparent);
  PopulateAhead ahead(regions, pages, 4 * kMiB);
  ahead.Reach(0, 0);
  ahead.Drain();
  std::size_t threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto id = static_cast<id_t>(std::stoul(task.path().filename()));
    errno = 0;
    const int priority = getpriority(PRIO_PROCESS, id);
    if (errno == ESRCH) continue;  // a thread of the test before, which has just ended
    EXPECT_EQ(priority, getpriority(PRIO_PROCESS, 0)) << "thread " << id;
    ++threads;
  }
  EXPECT_GE(threads, 2U);
}

TEST_F(PopulateAheadTest, AnArenaPopulatesWhereItsBlocksWillLie) {
  // Best fit begins with the shorter region, the second one.
  auto arena = RamArena::Create({.capacity_bytes = 24 * kMiB,
                                 .region_bytes = 16 * kMiB,
                                 .first_region = RegionId(0),
                                 .populate_ahead_bytes = 4 * kMiB,
                                 .populate_at_start = true});
  ASSERT_TRUE(arena.has_value());
  (*arena)->DrainPopulation();
  EXPECT_EQ(ResidentBytes((*arena)->regions()[0]), 0U);
  EXPECT_EQ(ResidentBytes((*arena)->regions()[1]), 4 * kMiB);
  auto block = (*arena)->Allocate(3 * kMiB);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->region(), RegionId(1));
  (*arena)->DrainPopulation();
  EXPECT_EQ((*arena)->populated_ahead_bytes(), 8 * kMiB) << "7 MiB, in whole steps";
}

TEST_F(PopulateAheadTest, BriefBlocksAskForNothing) {
  auto arena = RamArena::Create({.capacity_bytes = 24 * kMiB,
                                 .region_bytes = 16 * kMiB,
                                 .first_region = RegionId(0),
                                 .lowest_first = true,
                                 .populate_ahead_bytes = 4 * kMiB,
                                 .populate_at_start = true,
                                 .huge_pages = HugePageUse::kOff});
  ASSERT_TRUE(arena.has_value());
  auto block = (*arena)->Allocate(kMiB, Stay::kBrief);
  ASSERT_TRUE(block.has_value());
  (*arena)->DrainPopulation();
  EXPECT_EQ(ResidentBytes((*arena)->regions()[0]), 4 * kMiB) << "where the first block will lie";
  EXPECT_EQ(ResidentBytes((*arena)->regions()[1]), 0U);
}

TEST_F(PopulateAheadTest, AnArenaCostsNothingBeforeItsFirstBlock) {
  auto arena = RamArena::Create({.capacity_bytes = 16 * kMiB,
                                 .region_bytes = 16 * kMiB,
                                 .first_region = RegionId(0),
                                 .populate_ahead_bytes = 4 * kMiB,
                                 .huge_pages = HugePageUse::kOff});
  ASSERT_TRUE(arena.has_value());
  (*arena)->DrainPopulation();
  EXPECT_EQ(ResidentBytes((*arena)->regions()[0]), 0U);
  auto block = (*arena)->Allocate(2 * kMiB);
  ASSERT_TRUE(block.has_value());
  (*arena)->DrainPopulation();
  EXPECT_EQ(ResidentBytes((*arena)->regions()[0]), 4 * kMiB) << "behind the block, not in it";
}

TEST_F(PopulateAheadTest, AnArenaThatIsNotAskedPopulatesNothing) {
  auto arena = RamArena::Create({.capacity_bytes = 8 * kMiB, .region_bytes = 8 * kMiB});
  ASSERT_TRUE(arena.has_value());
  (*arena)->DrainPopulation();
  EXPECT_EQ((*arena)->populated_ahead_bytes(), 0U);
  EXPECT_EQ(ResidentBytes((*arena)->regions()[0]), 0U);
}

}  // namespace forebay::tier::populate_ahead_test
