// Tests who gets room, in which order, what counts, and what no longer counts.
#include "server/fetch/pin_room.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::fetch {
namespace {

using Order = std::vector<std::size_t>;

// Each extent takes 10 bytes.
std::vector<PinRoom::Pin> Pins(std::initializer_list<std::uint32_t> extents) {
  std::vector<PinRoom::Pin> pins;
  for (const std::uint32_t extent : extents) {
    pins.push_back({.key = {.dataset = 1, .extent = ExtentId(extent), .identity = extent},
                    .bytes = 10});
  }
  return pins;
}

class PinRoomTest : public ::testing::Test {
 protected:
  // A share that is given back may let a waiting request begin, which uses the members below.
  void TearDown() override {
    while (std::ranges::any_of(shares_, [](const auto& share) { return share != nullptr; })) {
      for (PinRoom::Share& share : shares_) share.reset();
    }
  }

  // Request `number` keeps its share in shares_[number], and is needed in steps_[number].
  void Take(std::size_t number, std::initializer_list<std::uint32_t> extents,
            std::uint64_t steps = 0, std::uint64_t steps_max = ~std::uint64_t{0}) {
    shares_.resize(std::max(shares_.size(), number + 1));
    steps_.resize(std::max(steps_.size(), number + 1));
    steps_[number] = steps;
    room_.Take({.pins = Pins(extents),
                .steps = [this, number] { return steps_[number]; },
                .steps_max = steps_max},
               [this, number](PinRoom::Share share, std::uint64_t at) {
                 EXPECT_EQ(at, steps_[number]);
                 shares_[number] = std::move(share);
                 order_.push_back(number);
               });
  }

  io::ManualClock clock_;
  PinRoom room_{40, clock_};
  std::vector<PinRoom::Share> shares_;
  std::vector<std::uint64_t> steps_;
  Order order_;
};

TEST_F(PinRoomTest, WhoFindsNoRoomWaitsUntilSomeIsGivenBack) {
  Take(0, {1, 2});
  Take(1, {3, 4});
  Take(2, {5});
  EXPECT_EQ(order_, (Order{0, 1}));
  EXPECT_EQ(room_.used_bytes(), 40U);
  EXPECT_EQ(room_.waiting(), 1U);
  shares_[1].reset();
  EXPECT_EQ(order_, (Order{0, 1, 2}));
  EXPECT_EQ(room_.used_bytes(), 30U);
}

TEST_F(PinRoomTest, AnExtentThatSeveralRequestsPinCountsOnce) {
  Take(0, {1, 2, 3});
  Take(1, {2, 3, 4, 4});
  Take(2, {1, 2, 3, 4});
  EXPECT_EQ(order_, (Order{0, 1, 2}));
  EXPECT_EQ(room_.used_bytes(), 40U);
  shares_[0].reset();
  EXPECT_EQ(room_.used_bytes(), 40U) << "the last one still pins all of them";
  shares_[2].reset();
  EXPECT_EQ(room_.used_bytes(), 30U);
}

TEST_F(PinRoomTest, ALargeRequestIsNotOvertakenForEver) {
  Take(0, {1, 2});
  Take(1, {3, 4, 5});
  Take(2, {6});
  EXPECT_EQ(order_, (Order{0})) << "there is room for the last one, but it came later";
  EXPECT_EQ(room_.TryTake({.pins = Pins({1})}, 0), nullptr);
  shares_[0].reset();
  EXPECT_EQ(order_, (Order{0, 1, 2}));
}

TEST_F(PinRoomTest, WhatOthersHavePinnedAlreadyTakesNoRoomAndNoTurn) {
  Take(0, {1, 2, 3});
  Take(1, {4, 5});
  Take(2, {3, 1}, /*steps=*/9);
  Take(3, {3, 1}, /*steps=*/9, /*steps_max=*/4);
  EXPECT_EQ(order_, (Order{0, 2})) << "the last one is not to be tried yet";
  shares_[0].reset();
  EXPECT_EQ(order_, (Order{0, 2, 1}));
  EXPECT_EQ(room_.used_bytes(), 40U);
  EXPECT_EQ(room_.waiting(), 1U);
}

TEST_F(PinRoomTest, ARequestThatIsLargerThanTheRoomGetsItAlone) {
  Take(0, {9});
  Take(1, {1, 2, 3, 4, 5, 6});
  Take(2, {7});
  EXPECT_EQ(order_, (Order{0}));
  shares_[0].reset();
  EXPECT_EQ(order_, (Order{0, 1}));
  EXPECT_EQ(room_.used_bytes(), 60U);
  shares_[1].reset();
  EXPECT_EQ(order_, (Order{0, 1, 2}));
}

TEST_F(PinRoomTest, TryTakeTakesWhatIsFreeIfNobodyWaits) {
  PinRoom::Share share = room_.TryTake({.pins = Pins({1, 2, 3})}, 0);
  ASSERT_NE(share, nullptr);
  EXPECT_EQ(room_.TryTake({.pins = Pins({4, 5})}, 0), nullptr);
  EXPECT_EQ(room_.TryTake({.pins = Pins({4})}, 1), nullptr) << "not needed now";
  EXPECT_EQ(room_.TryTake({.pins = Pins({1}), .steps_max = 3}, 4), nullptr) << "too early";
  EXPECT_NE(room_.TryTake({.pins = Pins({3, 4})}, 0), nullptr);
  EXPECT_EQ(room_.used_bytes(), 30U);
  share.reset();
  EXPECT_EQ(room_.used_bytes(), 0U);
}

TEST_F(PinRoomTest, WhatIsNeededFirstBeginsFirst) {
  Take(0, {1, 2, 3, 4});
  Take(1, {5}, /*steps=*/7);
  Take(2, {6}, 3);
  Take(3, {7}, 0);
  Take(4, {8}, 3);
  Take(5, {9, 10, 11}, 0);
  shares_[0].reset();
  EXPECT_EQ(order_, (Order{0, 3, 5})) << "half of the room stays free of what is needed later";
  shares_[3].reset();
  shares_[5].reset();
  EXPECT_EQ(order_, (Order{0, 3, 5, 2, 4}));
  shares_[2].reset();
  EXPECT_EQ(order_, (Order{0, 3, 5, 2, 4, 1}));
}

TEST_F(PinRoomTest, StepsThatFallChangeTheOrder) {
  Take(0, {1, 2, 3, 4});
  Take(1, {5}, /*steps=*/7);
  Take(2, {6}, 3);
  steps_[1] = 2;
  shares_[0].reset();
  EXPECT_EQ(order_, (Order{0, 1, 2}));
}

TEST_F(PinRoomTest, ARequestIsNotTriedBeforeItIsNeededSoonEnough) {
  Take(0, {1}, /*steps=*/8, /*steps_max=*/4);
  Take(1, {2}, 9);
  EXPECT_EQ(order_, (Order{1})) << "the other one does not wait for it";
  steps_[0] = 5;
  room_.Serve();
  EXPECT_EQ(order_, (Order{1}));
  steps_[0] = 4;
  room_.Serve();
  EXPECT_EQ(order_, (Order{1, 0}));
}

// The reader of a closed stream does not move, so its requests would never be needed now.
TEST_F(PinRoomTest, WhatNobodyWantsEndsAndTakesNoRoom) {
  Take(0, {1, 2, 3, 4});
  bool is_wanted = true;
  bool has_ended = false;
  room_.Take({.pins = Pins({5}),
              .steps = [] { return std::uint64_t{8}; },
              .steps_max = 4,
              .is_wanted = [&] { return is_wanted; }},
             [&](const PinRoom::Share&, std::uint64_t) {
               has_ended = true;
               EXPECT_EQ(room_.used_bytes(), 40U);
             });
  room_.Serve();
  EXPECT_FALSE(has_ended);
  is_wanted = false;
  room_.Serve();
  EXPECT_TRUE(has_ended);
  EXPECT_EQ(room_.waiting(), 0U);
}

// The GFS does not answer the first request. The others must not wait for it, and what it holds
// must not be subtracted twice when it ends.
TEST_F(PinRoomTest, SharesThatAreHeldTooLongNoLongerCount) {
  Take(0, {1, 2, 3, 4});
  clock_.AdvanceNs(1'000);
  Take(1, {5, 6});
  room_.LendSharesOf(1'500);
  EXPECT_EQ(order_, (Order{0}));
  clock_.AdvanceNs(1'000);
  room_.LendSharesOf(1'500);
  EXPECT_EQ(order_, (Order{0, 1}));
  EXPECT_EQ(room_.used_bytes(), 20U);
  room_.LendSharesOf(1'500);
  EXPECT_EQ(room_.used_bytes(), 20U) << "the second one is young";
  shares_[0].reset();
  EXPECT_EQ(room_.used_bytes(), 20U);
  shares_[1].reset();
  EXPECT_EQ(room_.used_bytes(), 0U);
}

TEST_F(PinRoomTest, SaysWhetherWhatIsNeededNowWaits) {
  Take(0, {1, 2, 3, 4});
  EXPECT_FALSE(room_.IsAnyNeededNow());
  Take(1, {5}, 3);
  EXPECT_FALSE(room_.IsAnyNeededNow()) << "the other one is needed later";
  steps_[1] = 0;
  EXPECT_TRUE(room_.IsAnyNeededNow());
  shares_[0].reset();
  EXPECT_FALSE(room_.IsAnyNeededNow());
}

// The daemon stops: all requests end at once, within `ready`.
TEST_F(PinRoomTest, NoRequestBeginsWithinAnother) {
  Take(0, {1, 2, 3, 4});
  constexpr std::size_t kRequests = 2'000;
  std::size_t ended = 0;
  bool is_within = false;
  for (std::size_t i = 0; i < kRequests; ++i) {
    room_.Take({.pins = Pins({5, 6, 7, 8})}, [&](PinRoom::Share share, std::uint64_t) {
      EXPECT_FALSE(std::exchange(is_within, true));
      share.reset();
      ++ended;
      is_within = false;
    });
  }
  shares_[0].reset();
  EXPECT_EQ(ended, kRequests);
  EXPECT_EQ(room_.used_bytes(), 0U);
}

}  // namespace
}  // namespace forebay::fetch
