#include "server/stream/view_pins.h"

#include <vector>

#include <gtest/gtest.h>

#include "server/tier/resident_extent.h"

namespace forebay::stream::view_pins_test {

tier::ExtentRef Extent(std::uint64_t bytes) {
  auto extent = std::make_shared<tier::ResidentExtent>();
  extent->image_bytes = bytes;
  return tier::ExtentRef(std::move(extent));
}

TEST(ViewPinsTest, AnExtentCountsOnceForAllBatchesThatPinIt) {
  ViewPins pins(1000);
  const std::vector<tier::ExtentRef> both = {Extent(300), Extent(200)};
  const ViewPins::Share first = pins.Take(both);
  EXPECT_EQ(pins.LimitsFor(both).pin_bytes, 500U);
  EXPECT_EQ(pins.LimitsFor(both).pinned_already, (std::vector<bool>{true, true}));

  ViewPins::Share second = pins.Take({both.data(), 1});
  const std::vector<tier::ExtentRef> other = {Extent(10), both[0], nullptr};
  EXPECT_EQ(pins.LimitsFor(other).pin_bytes, 500U);
  EXPECT_EQ(pins.LimitsFor(other).pinned_already, (std::vector<bool>{false, true, false}));
  second.reset();
  EXPECT_EQ(pins.LimitsFor(other).pin_bytes, 500U);
  EXPECT_EQ(pins.LimitsFor(other).pinned_already[1], true) << "the first batch still pins it";
}

TEST(ViewPinsTest, WhatNoBatchPinsAnyMoreIsFree) {
  ViewPins pins(1000);
  const std::vector<tier::ExtentRef> extents = {Extent(800), Extent(700)};
  ViewPins::Share large = pins.Take(extents);
  // Batches that are assembled at the same time may exceed the limit.
  EXPECT_EQ(pins.LimitsFor({}).pin_bytes, 0U);
  large.reset();
  EXPECT_EQ(pins.LimitsFor({}).pin_bytes, 1000U);
  EXPECT_EQ(pins.LimitsFor(extents).pinned_already, (std::vector<bool>{false, false}));
}

TEST(ViewPinsTest, ABatchWithoutViewsTakesNoShare) {
  ViewPins pins(1000);
  EXPECT_EQ(pins.Take({}), nullptr);
}

}  // namespace forebay::stream::view_pins_test
