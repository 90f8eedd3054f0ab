// The placer never promises more than the tiers hold.
#include "server/plan/placement.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::plan::placement_test {

Footprint Of(std::uint64_t image_bytes) {
  return {.ram_bytes = FootprintBytes(image_bytes), .ssd_bytes = FootprintBytes(image_bytes)};
}

TEST(Placement, FillsRamThenSsdThenNothing) {
  Placer placer({.ram_bytes = 8192, .ssd_bytes = 4096});
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kRam);
  EXPECT_EQ(placer.Place(Of(1)), HomeTier::kRam);
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kSsd);
  EXPECT_EQ(placer.Place(Of(1)), HomeTier::kNone);
}

TEST(Placement, CountsWholePages) {
  EXPECT_EQ(FootprintBytes(0), 0u);
  EXPECT_EQ(FootprintBytes(1), 4096u);
  EXPECT_EQ(FootprintBytes(4096), 4096u);
  EXPECT_EQ(FootprintBytes(4097), 8192u);
}

TEST(Placement, ALargeExtentMayPassASmallRemainder) {
  Placer placer({.ram_bytes = 4096, .ssd_bytes = 1 << 20});
  EXPECT_EQ(placer.Place(Of(8192)), HomeTier::kSsd);
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kRam) << "the remainder still serves what fits";
  EXPECT_EQ(placer.left().ram_bytes, 0u);
}

TEST(RamPlanTest, NineTenthsOfALargeTierAreForHomes) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const RamPlan through{.capacity_bytes = 1228 * kMiB,
                        .largest_extent_bytes = 32 * kMiB,
                        .has_passing_extents = true};
  EXPECT_GE(through.HomeBytes(), through.capacity_bytes / 100 * 93);
  EXPECT_EQ(through.WorkingBytes(), through.capacity_bytes / 16);
  const RamPlan alone{.capacity_bytes = 160 * kMiB, .largest_extent_bytes = 32 * kMiB};
  EXPECT_EQ(alone.WorkingBytes(), 0U);
  EXPECT_EQ(alone.HomeBytes(), 155 * kMiB);
}

TEST(RamPlanTest, ASmallTierKeepsSpaceForOneExtentButAtMostHalf) {
  RamPlan plan{.capacity_bytes = 400 << 20, .largest_extent_bytes = 32 << 20,
               .has_passing_extents = true};
  EXPECT_EQ(plan.WorkingBytes(), 64U << 20);
  plan.capacity_bytes = 200 << 20;
  EXPECT_EQ(plan.WorkingBytes(), 50U << 20);
  plan.capacity_bytes = 100 << 20;
  EXPECT_EQ(plan.WorkingBytes(), 32U << 20);
  plan.capacity_bytes = 40 << 20;
  EXPECT_EQ(plan.WorkingBytes(), 20U << 20);
}

TEST(RamPlanTest, CapacityForIsTheSmallestThatHolds) {
  for (const bool passing : {false, true}) {
    for (const std::uint64_t bytes : {1ULL, 156ULL << 20, 777'777'777ULL, 300ULL << 30}) {
      RamPlan plan{.largest_extent_bytes = 32 << 20, .has_passing_extents = passing};
      plan.capacity_bytes = plan.CapacityFor(bytes);
      EXPECT_GE(plan.HomeBytes(), bytes);
      plan.capacity_bytes -= 1 << 20;
      EXPECT_LT(plan.HomeBytes(), bytes);
    }
  }
}

TEST(Placement, ChecksumsTakeRoomOnSsdAlone) {
  const Footprint footprint{.ram_bytes = 4096, .ssd_bytes = 12288};
  Placer placer({.ram_bytes = 4096, .ssd_bytes = 16384});
  EXPECT_EQ(placer.Place(footprint), HomeTier::kRam);
  EXPECT_EQ(placer.Place(footprint), HomeTier::kSsd);
  EXPECT_EQ(placer.left().ssd_bytes, 4096U);
  EXPECT_EQ(placer.Place(footprint), HomeTier::kNone);
  placer.Release(HomeTier::kSsd, footprint);
  EXPECT_EQ(placer.left().ssd_bytes, 16384U);
}

TEST(Placement, WhatIsReleasedIsPlacedAnew) {
  Placer placer({.ram_bytes = 8192, .ssd_bytes = 4096});
  EXPECT_EQ(placer.Place(Of(8192)), HomeTier::kRam);
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kSsd);
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kNone);
  placer.Release(HomeTier::kNone, Of(4096));
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kNone) << "what had no space gives none back";
  placer.Release(HomeTier::kSsd, Of(4096));
  EXPECT_FALSE(placer.PlaceInRam(Of(4096)));
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kSsd);
  placer.Release(HomeTier::kRam, Of(8192));
  EXPECT_TRUE(placer.PlaceInRam(Of(4096)));
  EXPECT_EQ(placer.left().ram_bytes, 4096U);
}

TEST(Placement, AClosedSsdGivesNoRoomAndTakesNoneBack) {
  Placer placer({.ram_bytes = 4096, .ssd_bytes = 8192});
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kRam);
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kSsd);
  placer.CloseSsd();
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kNone);
  placer.Release(HomeTier::kSsd, Of(4096));
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kNone);
  placer.Release(HomeTier::kRam, Of(4096));
  EXPECT_EQ(placer.Place(Of(4096)), HomeTier::kRam);
}

// After any number of corrected sizes, the space taken is the sum of what is stored.
TEST(Placement, TheAccountIsExact) {
  constexpr TierSpace kRoom{.ram_bytes = 40 * 4096, .ssd_bytes = 60 * 4096};
  Placer placer(kRoom);
  struct Stored {
    HomeTier home = HomeTier::kNone;
    std::uint64_t bytes = 0;
  };
  std::vector<Stored> extents(50);
  std::uint64_t state = 1;
  const auto draw = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % (8 * 4096);
  };
  for (Stored& extent : extents) {
    extent.bytes = draw();
    extent.home = placer.Place(Of(extent.bytes));
  }
  for (int round = 0; round < 2000; ++round) {
    Stored& extent = extents[draw() % extents.size()];
    const std::uint64_t bytes = round < 1900 ? draw() : 0;
    placer.Release(extent.home, Of(extent.bytes));
    extent = {placer.Place(Of(bytes)), bytes};
    std::uint64_t ram = 0, ssd = 0;
    for (const Stored& each : extents) {
      if (each.home == HomeTier::kRam) ram += FootprintBytes(each.bytes);
      if (each.home == HomeTier::kSsd) ssd += FootprintBytes(each.bytes);
    }
    ASSERT_EQ(placer.left().ram_bytes, kRoom.ram_bytes - ram) << "round " << round;
    ASSERT_EQ(placer.left().ssd_bytes, kRoom.ssd_bytes - ssd) << "round " << round;
  }
  for (const Stored& extent : extents) placer.Release(extent.home, Of(extent.bytes));
  EXPECT_EQ(placer.left().ram_bytes, kRoom.ram_bytes);
  EXPECT_EQ(placer.left().ssd_bytes, kRoom.ssd_bytes);
}

}  // namespace forebay::plan::placement_test
