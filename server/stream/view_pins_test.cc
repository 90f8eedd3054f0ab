#include "server/stream/view_pins.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "server/tier/resident_extent.h"

namespace forebay::stream::view_pins_test {

using Extents = std::vector<tier::ExtentRef>;
using Pinned = std::shared_ptr<const ViewPins::Pinned>;
using Places = std::vector<bool>;

tier::ExtentRef Extent(std::uint64_t bytes, tier::TierKind tier = tier::TierKind::kRam) {
  auto extent = std::make_shared<tier::ResidentExtent>();
  extent->image_bytes = bytes;
  extent->tier = tier;
  return tier::ExtentRef(std::move(extent));
}

class ViewPinsTest : public ::testing::Test {
 protected:
  Pinned Pin(const Extents& extents, ViewUse use = ViewUse::kWithinLimit) {
    Pinned pinned = pins_.Pin(extents, use, in_place_);
    EXPECT_EQ(pinned == nullptr, std::ranges::count(in_place_, true) == 0);
    if (pinned) {
      EXPECT_EQ(std::ranges::count(in_place_, true),
                static_cast<std::ptrdiff_t>(pinned->extents().size()));
    }
    return pinned;
  }
  // Whether exactly this many bytes are left.
  bool HasLeft(std::uint64_t bytes) {
    return Pin({Extent(bytes)}) != nullptr && Pin({Extent(bytes + 1)}) == nullptr;
  }

  ViewPins pins_{1000};
  Places in_place_;
};

TEST_F(ViewPinsTest, WhatExceedsTheLimitIsLeftOutAndSmallerOnesAreNot) {
  const Extents extents = {Extent(600), Extent(500), Extent(400)};
  const Pinned pinned = Pin(extents);
  EXPECT_EQ(in_place_, (Places{true, false, true}));
  ASSERT_EQ(pinned->extents().size(), 2U);
  EXPECT_EQ(pinned->extents()[0], extents[0]);
  EXPECT_EQ(pinned->extents()[1], extents[2]);
  EXPECT_EQ(Pin({Extent(1)}), nullptr) << "the limit is reached";
}

TEST_F(ViewPinsTest, AnExtentCountsOnceForAllBatchesThatPinIt) {
  const Extents both = {Extent(300), Extent(200)};
  const Pinned first = Pin(both);
  Pinned second = Pin({both[0]});
  EXPECT_TRUE(HasLeft(500));
  second.reset();
  EXPECT_TRUE(HasLeft(500)) << "the first batch still pins it";
  const Pinned rest = Pin({Extent(500)});
  const Pinned again = Pin({Extent(10), both[0], nullptr});
  EXPECT_EQ(in_place_, (Places{false, true, false})) << "what is pinned anyway costs nothing";
}

TEST_F(ViewPinsTest, WhatNoBatchPinsAnyMoreIsFree) {
  const Extents extents = {Extent(600), Extent(400)};
  Pinned pinned = Pin(extents);
  EXPECT_EQ(Pin({Extent(1)}), nullptr);
  pinned.reset();
  EXPECT_TRUE(HasLeft(1000));
}

TEST_F(ViewPinsTest, WithoutOtherMemoryTheLimitIsExceeded) {
  Pinned all = Pin({Extent(800), Extent(700)}, ViewUse::kEverything);
  EXPECT_EQ(in_place_, (Places{true, true}));
  EXPECT_EQ(Pin({Extent(1)}), nullptr);
  all.reset();
  EXPECT_TRUE(HasLeft(1000));
}

TEST_F(ViewPinsTest, ABatchThatIsToPinNothingPinsNothing) {
  const Extents extents = {Extent(10), Extent(20)};
  const Pinned other = Pin({extents[0]});
  EXPECT_EQ(Pin(extents, ViewUse::kNothing), nullptr) << "not even what is pinned anyway";
  EXPECT_EQ(in_place_, (Places{false, false}));
  EXPECT_TRUE(HasLeft(990));
}

TEST_F(ViewPinsTest, OnlyRamIsPinned) {
  for (const ViewUse use : {ViewUse::kWithinLimit, ViewUse::kEverything}) {
    EXPECT_EQ(Pin({Extent(10, tier::TierKind::kSsd), nullptr}, use), nullptr);
    EXPECT_EQ(Pin({}, use), nullptr);
  }
}

TEST_F(ViewPinsTest, WhatIsPinnedMayOutliveTheTable) {
  auto pins = std::make_unique<ViewPins>(10);
  auto extent = std::make_shared<tier::ResidentExtent>();
  extent->image_bytes = 5;
  Pinned pinned = pins->Pin(Extents{tier::ExtentRef(extent)}, ViewUse::kWithinLimit, in_place_);
  pins.reset();
  ASSERT_EQ(pinned->extents().size(), 1U);
  pinned.reset();
  EXPECT_EQ(extent.use_count(), 1);
}

}  // namespace forebay::stream::view_pins_test
