// When a run has to stop, from the configuration and from Slurm's environment, with clocks that
// the test sets.
#include "trainer/core/machine/wall_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::train::wall_limit_test {

using ::testing::HasSubstr;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr WallClocks kClocks{.now_ns = 5 * kSecond, .unix_s = 1'000'000};

RunConfig Minutes(double minutes, double margin_s = 60) {
  RunConfig run;
  run.wall_minutes = minutes;
  run.wall_margin_s = margin_s;
  return run;
}

TEST(WallLimit, NoneIsNeverReached) {
  const auto limit = WallLimit::Make(Minutes(0), kClocks);
  ASSERT_TRUE(limit.has_value());
  EXPECT_FALSE(limit->Reached(UINT64_MAX));
}

TEST(WallLimit, LeavesTheMarginForACheckpoint) {
  const auto limit = WallLimit::Make(Minutes(2), kClocks);
  ASSERT_TRUE(limit.has_value());
  EXPECT_FALSE(limit->Reached(65 * kSecond - 1));
  EXPECT_TRUE(limit->Reached(65 * kSecond));
}

TEST(WallLimit, SlurmsEndCountsWhereItIsEarlier) {
  WallClocks clocks = kClocks;
  clocks.slurm_end_time = "1000100";  // in 100 s
  const auto alone = WallLimit::Make(Minutes(0), clocks);
  ASSERT_TRUE(alone.has_value());
  EXPECT_FALSE(alone->Reached(45 * kSecond - 1));
  EXPECT_TRUE(alone->Reached(45 * kSecond));
  EXPECT_TRUE(WallLimit::Make(Minutes(30), clocks)->Reached(45 * kSecond));
  EXPECT_TRUE(WallLimit::Make(Minutes(1.5), clocks)->Reached(35 * kSecond));
}

TEST(WallLimit, AnEndThatIsBehindIsReachedAtOnce) {
  WallClocks clocks = kClocks;
  clocks.slurm_end_time = "999";
  EXPECT_TRUE(WallLimit::Make(Minutes(0), clocks)->Reached(clocks.now_ns));
}

TEST(WallLimit, WhatLeavesNothingOrIsNoNumberIsRefused) {
  const auto margin = WallLimit::Make(Minutes(1), kClocks);
  ASSERT_FALSE(margin.has_value());
  EXPECT_THAT(margin.error().message(), HasSubstr("run.wall_margin_s"));
  WallClocks clocks = kClocks;
  for (const char* wrong : {"x", "12x", "-1", " 5", "99999999999999999999"}) {
    clocks.slurm_end_time = wrong;
    const auto refused = WallLimit::Make(Minutes(0), clocks);
    ASSERT_FALSE(refused.has_value()) << wrong;
    EXPECT_THAT(refused.error().message(), HasSubstr("SLURM_JOB_END_TIME"));
  }
}

}  // namespace forebay::train::wall_limit_test
