// The placer never promises more than the tiers hold.
#include "server/plan/placement.h"

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

}  // namespace
}  // namespace forebay::plan
