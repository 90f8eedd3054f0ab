#include "client/batch_retry.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

const Error kAway(ErrorCode::kUnavailable, "object 'x.bin': the GFS has failed for 300000 ms");
const Error kLate(ErrorCode::kDeadlineExceeded, "the batch of epoch 0, step 3 has not arrived");
constexpr milliseconds kPull(limits::kPullDeadlineMs);

BatchRetry::Time At(std::int64_t ms) { return BatchRetry::Time(milliseconds(1'000'000 + ms)); }

TEST(BatchRetryTest, TheFirstWaitTakesAPullsDeadlineHoweverShortRetriesAre) {
  const BatchRetry retry(At(0), milliseconds(50));
  EXPECT_EQ(retry.Deadline(At(0)), At(0) + kPull);
  EXPECT_EQ(retry.Deadline(At(700)), At(700) + kPull) << "after a reconnect";
}

TEST(BatchRetryTest, LaterWaitsEndWithTheTimeForRetries) {
  BatchRetry retry(At(0), milliseconds(200'000));
  EXPECT_TRUE(retry.MayWaitOn(At(120'000)));
  EXPECT_EQ(retry.Deadline(At(120'000)), At(200'000));
  BatchRetry longer(At(0), milliseconds(600'000));
  EXPECT_TRUE(longer.MayWaitOn(At(120'000)));
  EXPECT_EQ(longer.Deadline(At(120'000)), At(240'000));
  EXPECT_FALSE(longer.MayWaitOn(At(600'000)));
}

TEST(BatchRetryTest, PausesGrowAreJitteredAndHaveABound) {
  BatchRetry retry(At(0), milliseconds(60'000));
  BatchRetry other(At(1), milliseconds(60'000));
  milliseconds longest(0);
  bool differs = false;
  std::int64_t now_ms = 0;
  for (int i = 0; i < 40; ++i) {
    const auto resume = retry.ResumeAfter(kAway, At(now_ms));
    const auto others = other.ResumeAfter(kAway, At(now_ms));
    ASSERT_TRUE(resume && others);
    const auto pause = std::chrono::duration_cast<milliseconds>(*resume - At(now_ms));
    EXPECT_LE(pause, milliseconds(i == 0 ? 5 : 500));
    longest = std::max(longest, pause);
    differs = differs || *resume != *others;
    now_ms += pause.count() + 1;
  }
  EXPECT_GT(longest, milliseconds(250));
  EXPECT_TRUE(differs) << "ranks of a job would ask all at once";
}

TEST(BatchRetryTest, NoPauseGoesBeyondTheLimitAndThenThereIsNone) {
  BatchRetry retry(At(0), milliseconds(100));
  const auto resume = retry.ResumeAfter(kAway, At(99));
  ASSERT_TRUE(resume.has_value());
  EXPECT_LE(*resume, At(100));
  EXPECT_FALSE(retry.ResumeAfter(kAway, At(100)).has_value());
  const Error told = retry.RefusedError(At(100));
  EXPECT_EQ(told.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(told.message(), HasSubstr("object 'x.bin'"));
  EXPECT_THAT(told.message(), HasSubstr("asked for 2 times within 100 ms"));
}

TEST(BatchRetryTest, ZeroAsksOnce) {
  BatchRetry retry(At(0), milliseconds(0));
  EXPECT_FALSE(retry.ResumeAfter(kAway, At(0)).has_value());
  EXPECT_FALSE(BatchRetry(At(0), milliseconds(0)).MayWaitOn(At(120'000)));
}

TEST(BatchRetryTest, ABatchThatNeverComesIsReportedWithTheDaemonsLastWords) {
  BatchRetry retry(At(0), milliseconds(600'000));
  EXPECT_THAT(retry.LateError(kLate, At(600'000)).message(), Not(HasSubstr("the daemon said")));
  EXPECT_EQ(retry.LateError(kLate, At(600'000)).code(), ErrorCode::kDeadlineExceeded);
  ASSERT_TRUE(retry.ResumeAfter(kAway, At(1000)).has_value());
  const Error told = retry.LateError(kLate, At(600'000));
  EXPECT_EQ(told.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(told.message(), HasSubstr("epoch 0, step 3 has not arrived within 600000 ms"));
  EXPECT_THAT(told.message(), HasSubstr("object 'x.bin'"));
}

TEST(BatchRetryTest, TheCallersDeadlineEndsWaitsPausesAndTriesBeforeTheirOwnLimits) {
  BatchRetry retry(At(0), milliseconds(60'000), At(40));
  EXPECT_EQ(retry.Deadline(At(0)), At(40));
  EXPECT_TRUE(retry.MayWaitOn(At(39)));
  EXPECT_FALSE(retry.MayWaitOn(At(40)));
  ASSERT_TRUE(retry.ResumeAfter(kAway, At(39)).has_value());
  EXPECT_LE(*retry.ResumeAfter(kAway, At(39)), At(40));
  EXPECT_FALSE(retry.ResumeAfter(kAway, At(40)).has_value());
  const Error refused = retry.RefusedError(At(40));
  EXPECT_EQ(refused.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(refused.message(), HasSubstr("x.bin"));
  EXPECT_THAT(refused.message(), HasSubstr("the caller's deadline"));
  EXPECT_THAT(refused.message(), Not(HasSubstr("retry_for_ms")));
}

}  // namespace
}  // namespace forebay::internal
