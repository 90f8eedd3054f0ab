// A node yields if its GFS alone is slow, and reads again later.
#include "server/daemon/gfs_yield.h"

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::daemon::gfs_yield_test {

constexpr std::int64_t kSecondNs = 1'000'000'000;

class GfsYieldTest : public ::testing::Test {
 protected:
  // One Look after so long.
  void LookAfter(std::int64_t ns) {
    clock_.AdvanceNs(ns);
    yield_.Look();
  }

  io::ManualClock clock_;
  plan::Membership nodes_{NodeRank(1), {{.rank = NodeRank(0)},
                                        {.rank = NodeRank(1)},
                                        {.rank = NodeRank(2)},
                                        {.rank = NodeRank(3)},
                                        {.rank = NodeRank(4)}}};
  stage::GfsCalls::Pace pace_;
  std::int64_t others_ns_ = kSecondNs / 100;  // how long a call takes on the other nodes
  bool others_answer_ = true;
  std::multiset<std::uint32_t> asked_;
  int begun_ = 0;
  GfsYield yield_{{.nodes = nodes_,
                   .clock = clock_,
                   .pace = [this] { return pace_; },
                   .ask =
                       [this](NodeRank node, const GfsYieldParts::Heard& heard) {
                         asked_.insert(node.value());
                         if (others_answer_) return heard(others_ns_);
                         heard(Error(ErrorCode::kUnavailable, "silent"));
                       },
                   .begun = [this] { ++begun_; }}};
};

TEST_F(GfsYieldTest, ANodeWhoseGfsWorksAsksNobody) {
  pace_ = {.longest_ns = 20 * kSecondNs, .oldest_ns = GfsYield::kSlowNs - 1};
  for (int i = 0; i < 100; ++i) LookAfter(kSecondNs);
  EXPECT_TRUE(asked_.empty());
  EXPECT_FALSE(nodes_.Yields());
}

TEST_F(GfsYieldTest, ANodeThatYieldsForAnotherReasonYieldsForASlowGfsInAddition) {
  nodes_.SetYields(plan::YieldReason::kArrives, true);
  for (int i = 0; i < 100; ++i) LookAfter(kSecondNs);
  EXPECT_TRUE(nodes_.Yields()) << "it is not this class that ends it";
  EXPECT_EQ(begun_, 0);
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  EXPECT_TRUE(nodes_.YieldsFor(plan::YieldReason::kSlowGfs));
  EXPECT_EQ(begun_, 1);
  pace_.oldest_ns = 0;
  LookAfter(GfsYield::kRestMinNs);
  EXPECT_FALSE(nodes_.YieldsFor(plan::YieldReason::kSlowGfs));
  EXPECT_TRUE(nodes_.YieldsFor(plan::YieldReason::kArrives));
}

TEST_F(GfsYieldTest, ANodeWhoseGfsAloneIsSlowYieldsAndReadsAgainLater) {
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  EXPECT_EQ(asked_.size(), GfsYield::kAsked);
  EXPECT_EQ(asked_.count(1), 0U);
  EXPECT_FALSE(nodes_.Yields()) << "the answers have not been looked at";
  LookAfter(kSecondNs);
  EXPECT_TRUE(nodes_.Yields());
  EXPECT_EQ(begun_, 1);
  LookAfter(1);
  EXPECT_EQ(begun_, 2) << "once more, for what began to wait at the same time";
  LookAfter(1);
  EXPECT_EQ(begun_, 2);
  LookAfter(GfsYield::kRestMinNs - 3);
  EXPECT_TRUE(nodes_.Yields());
  pace_.oldest_ns = 0;
  LookAfter(1);
  EXPECT_FALSE(nodes_.Yields());
  // It is as slow as before, so it yields again, for twice as long.
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  EXPECT_TRUE(nodes_.Yields());
  EXPECT_EQ(begun_, 3);
  LookAfter(2 * GfsYield::kRestMinNs - 1);
  EXPECT_TRUE(nodes_.Yields());
  pace_.oldest_ns = 0;
  LookAfter(1);
  EXPECT_FALSE(nodes_.Yields());
  // After a long time without it, it is the first time again.
  LookAfter(2 * GfsYield::kRestMinNs);
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  ASSERT_TRUE(nodes_.Yields());
  pace_.oldest_ns = 0;
  LookAfter(GfsYield::kRestMinNs);
  EXPECT_FALSE(nodes_.Yields());
}

TEST_F(GfsYieldTest, ANodeWhoseCallHasNotEndedGoesOnToYieldWithoutTryingTheGfs) {
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  ASSERT_TRUE(nodes_.Yields());
  asked_.clear();
  LookAfter(GfsYield::kRestMinNs);
  EXPECT_EQ(asked_.size(), GfsYield::kAsked);
  EXPECT_TRUE(nodes_.Yields()) << "the others are asked first";
  LookAfter(kSecondNs);
  LookAfter(2 * GfsYield::kRestMinNs - 1);
  EXPECT_TRUE(nodes_.Yields());
  EXPECT_EQ(begun_, 4);
  // By now it hangs for all.
  others_ns_ = GfsYield::kSlowNs;
  LookAfter(1);
  EXPECT_TRUE(nodes_.Yields());
  LookAfter(kSecondNs);
  EXPECT_FALSE(nodes_.Yields());
}

TEST_F(GfsYieldTest, ANodeThatHearsNothingFromOthersYieldsNoLonger) {
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  ASSERT_TRUE(nodes_.Yields());
  others_answer_ = false;
  LookAfter(GfsYield::kRestMinNs);
  LookAfter(GfsYield::kSlowNs);
  EXPECT_TRUE(nodes_.Yields()) << "three nodes have not answered, so three others are asked";
  LookAfter(GfsYield::kSlowNs - 1);
  EXPECT_TRUE(nodes_.Yields());
  LookAfter(1);
  EXPECT_FALSE(nodes_.Yields());
}

TEST_F(GfsYieldTest, ANodeWhoseCallsEndAgainReadsAfterTheShortestTime) {
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  LookAfter(GfsYield::kRestMinNs);
  LookAfter(kSecondNs);
  ASSERT_TRUE(nodes_.Yields()) << "for twice as long";
  pace_.oldest_ns = 0;
  LookAfter(GfsYield::kRestMinNs - 1);
  EXPECT_TRUE(nodes_.Yields());
  LookAfter(1);
  EXPECT_FALSE(nodes_.Yields());
}

TEST_F(GfsYieldTest, ANodeWhoseOtherReadsEndQuicklyDoesNotYield) {
  pace_ = {.oldest_ns = 60 * kSecondNs, .since_quick_ns = GfsYield::kSlowNs - 1};
  for (int i = 0; i < 30; ++i) LookAfter(kSecondNs);
  EXPECT_TRUE(asked_.empty());
  EXPECT_FALSE(nodes_.Yields());
  pace_.since_quick_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  EXPECT_TRUE(nodes_.Yields());
}

TEST_F(GfsYieldTest, NobodyYieldsIfTheGfsIsAsSlowForOthers) {
  pace_.oldest_ns = 60 * kSecondNs;
  others_ns_ = 60 * kSecondNs / GfsYield::kTimes + 1;
  for (int i = 0; i < 30; ++i) LookAfter(kSecondNs);
  EXPECT_FALSE(nodes_.Yields());
  EXPECT_GE(asked_.count(0), 3U) << "it asks on, in turn";
  EXPECT_GE(asked_.count(4), 3U);
}

TEST_F(GfsYieldTest, NodesThatDoNotAnswerOrHaveReadNothingSayNothing) {
  pace_.oldest_ns = 60 * kSecondNs;
  others_answer_ = false;
  for (int i = 0; i < 30; ++i) LookAfter(kSecondNs);
  EXPECT_FALSE(nodes_.Yields());
  others_answer_ = true;
  others_ns_ = 0;
  for (int i = 0; i < 30; ++i) LookAfter(kSecondNs);
  EXPECT_FALSE(nodes_.Yields());
}

TEST_F(GfsYieldTest, DeadNodesAreNotAsked) {
  for (const std::uint32_t node : {0U, 2U, 3U}) nodes_.SetLives(NodeRank(node), false);
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  EXPECT_EQ(asked_, std::multiset<std::uint32_t>{4});
}

TEST_F(GfsYieldTest, WhatWasHeardInAnEarlierStallIsForgotten) {
  pace_.oldest_ns = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  pace_.oldest_ns = 0;
  LookAfter(kSecondNs);
  pace_.oldest_ns = GfsYield::kSlowNs;
  others_ns_ = GfsYield::kSlowNs;
  LookAfter(kSecondNs);
  LookAfter(kSecondNs);
  EXPECT_FALSE(nodes_.Yields());
}

}  // namespace forebay::daemon::gfs_yield_test
