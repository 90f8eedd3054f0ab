// The placer never promises more than the tiers hold.
#include "server/plan/placement.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::plan {
namespace {

TEST(Placement, FillsRamThenSsdThenNothing) {
  Placer placer({.ram_bytes = 8192, .ssd_bytes = 4096});
  EXPECT_EQ(placer.Place(4096), Home::kRam);
  EXPECT_EQ(placer.Place(1), Home::kRam);
  EXPECT_EQ(placer.Place(4096), Home::kSsd);
  EXPECT_EQ(placer.Place(1), Home::kTransient);
}

TEST(Placement, CountsWholePages) {
  EXPECT_EQ(FootprintBytes(0), 0u);
  EXPECT_EQ(FootprintBytes(1), 4096u);
  EXPECT_EQ(FootprintBytes(4096), 4096u);
  EXPECT_EQ(FootprintBytes(4097), 8192u);
}

TEST(Placement, ALargeExtentMayPassASmallRemainder) {
  Placer placer({.ram_bytes = 4096, .ssd_bytes = 1 << 20});
  EXPECT_EQ(placer.Place(8192), Home::kSsd);
  EXPECT_EQ(placer.Place(4096), Home::kRam) << "the remainder still serves what fits";
  EXPECT_EQ(placer.left().ram_bytes, 0u);
}

TEST(Placement, SettlesWhatTurnsOutSmallerOrLarger) {
  Placer placer({.ram_bytes = 16384, .ssd_bytes = 8192});
  EXPECT_EQ(placer.Place(8192), Home::kRam);
  EXPECT_EQ(placer.Place(8192), Home::kRam);
  EXPECT_EQ(placer.Settle(Home::kRam, 8192, 4096), Home::kRam);
  EXPECT_EQ(placer.left().ram_bytes, 4096u);
  EXPECT_EQ(placer.Settle(Home::kRam, 8192, 12288), Home::kRam) << "what was left is enough";
  EXPECT_EQ(placer.left().ram_bytes, 0u);
  EXPECT_EQ(placer.Settle(Home::kRam, 4096, 8192), Home::kSsd);
  EXPECT_EQ(placer.left().ram_bytes, 4096u) << "its room in RAM is free again";
  EXPECT_EQ(placer.left().ssd_bytes, 0u);
  EXPECT_EQ(placer.Settle(Home::kSsd, 8192, 12288), Home::kTransient);
  EXPECT_EQ(placer.left().ssd_bytes, 8192u);
  EXPECT_EQ(placer.Settle(Home::kTransient, 4096, 1 << 20), Home::kTransient);
}

TEST(Placement, WhatWasTransientIsPlacedWhereThereIsRoomByNow) {
  Placer placer({.ram_bytes = 8192, .ssd_bytes = 4096});
  EXPECT_EQ(placer.Place(8192), Home::kRam);
  EXPECT_EQ(placer.Place(8192), Home::kTransient);
  EXPECT_EQ(placer.Settle(Home::kRam, 8192, 4096), Home::kRam);
  EXPECT_EQ(placer.Settle(Home::kTransient, 8192, 3000), Home::kRam);
  EXPECT_EQ(placer.Settle(Home::kTransient, 8192, 3000), Home::kSsd);
  EXPECT_EQ(placer.Settle(Home::kTransient, 8192, 3000), Home::kTransient);
  EXPECT_EQ(placer.left().ram_bytes, 0U);
  EXPECT_EQ(placer.left().ssd_bytes, 0U);
}

// However often sizes turn out different, what is taken is the sum of what is stored.
TEST(Placement, TheAccountIsExact) {
  constexpr Room kRoom{.ram_bytes = 40 * 4096, .ssd_bytes = 60 * 4096};
  Placer placer(kRoom);
  struct Stored {
    Home home = Home::kTransient;
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
    extent.home = placer.Place(extent.bytes);
  }
  for (int round = 0; round < 2000; ++round) {
    Stored& extent = extents[draw() % extents.size()];
    const std::uint64_t bytes = round < 1900 ? draw() : 0;
    extent = {placer.Settle(extent.home, extent.bytes, bytes), bytes};
    std::uint64_t ram = 0, ssd = 0;
    for (const Stored& each : extents) {
      if (each.home == Home::kRam) ram += FootprintBytes(each.bytes);
      if (each.home == Home::kSsd) ssd += FootprintBytes(each.bytes);
    }
    ASSERT_EQ(placer.left().ram_bytes, kRoom.ram_bytes - ram) << "round " << round;
    ASSERT_EQ(placer.left().ssd_bytes, kRoom.ssd_bytes - ssd) << "round " << round;
  }
  for (const Stored& extent : extents) placer.Release(extent.home, extent.bytes);
  EXPECT_EQ(placer.left().ram_bytes, kRoom.ram_bytes);
  EXPECT_EQ(placer.left().ssd_bytes, kRoom.ssd_bytes);
}

}  // namespace
}  // namespace forebay::plan
