// Batches that the daemon cannot bring for a while: asked for again, each handed out once.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::stream_retry_test {

using ::testing::HasSubstr;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::Connect;
using testing::ExpectDataLoss;
using testing::FakeDaemon;
using testing::FakeStream;
using testing::Open;
using testing::Soon;

constexpr std::uint64_t kSteps = 62;

Error Away() {
  return Error(ErrorCode::kUnavailable, "object 'images-7.bin': the GFS has failed for 10 ms");
}

// Refuses every step the first `times` times, by `error`.
class Refusals {
 public:
  Refusals(FakeDaemon& daemon, std::uint64_t times, Error error = Away())
      : times_(times), error_(std::move(error)) {
    daemon.faults.refuse = [this](std::uint64_t step) -> std::optional<Error> {
      MutexLock lock(mutex_);
      if (said_[step] == times_) return std::nullopt;
      ++said_[step];
      ++count_;
      return error_;
    };
  }
  void End() {
    MutexLock lock(mutex_);
    times_ = 0;
    said_.clear();
  }
  std::uint64_t count() const { return count_; }

 private:
  Mutex mutex_;
  std::uint64_t times_ FOREBAY_GUARDED_BY(mutex_);
  const Error error_;
  std::map<std::uint64_t, std::uint64_t> said_ FOREBAY_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> count_ = 0;
};

TEST(StreamRetryTest, AGfsThatIsAwayForAWhileCostsNoSampleAndRepeatsNone) {
  FakeDaemon daemon;
  Refusals refusals(daemon, 2);
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(3));
  std::uint64_t step = 0;
  for (;; ++step) {
    auto batch = stream->Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!*batch) break;
    ASSERT_EQ((*batch)->step(), StepId(step));
  }
  EXPECT_EQ(step, kSteps);
  EXPECT_EQ(refusals.count(), 2 * kSteps);
  EXPECT_EQ(stream->stats().retries, 2 * kSteps);
  EXPECT_EQ(daemon.counters.batches, kSteps) << "a batch was sent twice";
  EXPECT_EQ(daemon.counters.credit_breaches, 0U);
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(StreamRetryTest, PullAsksAgainToo) {
  FakeDaemon daemon;
  Refusals refusals(daemon, 3);
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(0));
  auto batch = stream->Pull({.epoch = EpochId(0), .step = StepId(9), .micro_size = 4});
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_EQ(batch->step(), StepId(9));
  EXPECT_EQ(refusals.count(), 3U);
  EXPECT_EQ(stream->stats().retries, 3U);
}

TEST(StreamRetryTest, AfterTheLimitTheObjectIsNamedAndALaterNextBringsTheSameBatch) {
  FakeDaemon daemon;
  Refusals refusals(daemon, ~0ULL);
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(2);
  options.retry_for_ms = 20;
  auto stream = Open(*client, options);
  for (int call = 0; call < 2; ++call) {
    const auto batch = stream->Next();
    ASSERT_FALSE(batch.has_value());
    EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
    EXPECT_THAT(batch.error().message(), HasSubstr("images-7.bin"));
    EXPECT_THAT(batch.error().message(), HasSubstr("retry_for_ms is 20"));
  }
  EXPECT_GT(refusals.count(), 2U);
  refusals.End();
  std::uint64_t step = 0;
  for (;; ++step) {
    const auto batch = stream->Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!*batch) break;
    ASSERT_EQ((*batch)->step(), StepId(step));
  }
  EXPECT_EQ(step, kSteps);
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(StreamRetryTest, WithoutTimeForItNothingIsAskedForAgain) {
  FakeDaemon daemon;
  Refusals refusals(daemon, 1);
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(0);
  options.retry_for_ms = 0;
  auto stream = Open(*client, options);
  const auto first = stream->Next();
  ASSERT_FALSE(first.has_value());
  EXPECT_THAT(first.error().message(), HasSubstr("images-7.bin"));
  EXPECT_EQ(refusals.count(), 1U);
  EXPECT_EQ(stream->stats().retries, 0U);
  const auto second = stream->Next();
  ASSERT_TRUE(second.has_value()) << second.error().ToString();
  EXPECT_EQ((*second)->step(), StepId(0));
}

TEST(StreamRetryTest, WhatAskingAgainCannotHelpEndsTheStreamAtOnce) {
  FakeDaemon daemon;
  Refusals refusals(daemon, ~0ULL, Error(ErrorCode::kDataLoss, "changed since first read"));
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(0));
  for (int call = 0; call < 2; ++call) {
    const auto batch = stream->Next();
    ASSERT_FALSE(batch.has_value());
    ExpectDataLoss(batch.error(), "changed since first read");
  }
  EXPECT_EQ(refusals.count(), 1U);
}

TEST(StreamRetryTest, CancelEndsTheWaitingBetweenTwoTries) {
  FakeDaemon daemon;
  Refusals refusals(daemon, ~0ULL);
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  const auto began = steady_clock::now();
  std::optional<Error> met;
  {
    std::jthread reader([&] {
      const auto batch = stream->Next();
      if (!batch.has_value()) met = batch.error();
    });
    EXPECT_TRUE(Soon([&] { return refusals.count() >= 6; }));
    stream->Cancel();
  }
  ASSERT_TRUE(met.has_value());
  EXPECT_EQ(met->code(), ErrorCode::kCancelled);
  EXPECT_LT(steady_clock::now() - began,
            milliseconds(StreamOptions().retry_for_ms / 4));
}

TEST(StreamRetryTest, ACallersDeadlineEndsTheWaitAndLosesNothing) {
  FakeDaemon daemon;
  Refusals refusals(daemon, ~0ULL);
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(3));
  for (int call = 0; call < 3; ++call) {
    // The first call has to wait until the daemon's refusal has come.
    const auto deadline = steady_clock::now() + milliseconds(call == 0 ? 2000 : 20);
    const auto batch = stream->Next(deadline);
    ASSERT_FALSE(batch.has_value());
    EXPECT_GE(steady_clock::now(), deadline);
    EXPECT_EQ(batch.error().code(), ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(batch.error().message(), HasSubstr("images-7.bin")) << "the daemon's words";
    EXPECT_THAT(batch.error().message(), HasSubstr("the caller's deadline"));
  }
  EXPECT_GE(stream->stats().wait_ns, 30'000'000U) << "waits without a batch count, too";
  refusals.End();
  std::uint64_t step = 0;
  for (;;) {
    // A caller that never waits: it has its batches as they come.
    const auto batch = stream->Next(steady_clock::time_point());
    if (!batch.has_value()) {
      ASSERT_EQ(batch.error().code(), ErrorCode::kDeadlineExceeded) << batch.error().ToString();
      std::this_thread::yield();
      continue;
    }
    if (!*batch) break;
    ASSERT_EQ((*batch)->step(), StepId(step++));
  }
  EXPECT_EQ(step, kSteps);
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(StreamRetryTest, ACallersDeadlineHoldsWhileTheDaemonIsAway) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(0));
  ASSERT_TRUE(stream->Next().has_value());
  daemon.Stop();
  // More often than a daemon that ends every call is tried: none of these reaches one.
  for (int call = 0; call < 2 * limits::kReconnectsWithoutBatchMax; ++call) {
    // The first call has to notice that the connection is lost.
    const auto batch = stream->Next(steady_clock::now() + milliseconds(call == 0 ? 2000 : 10));
    ASSERT_FALSE(batch.has_value());
    EXPECT_EQ(batch.error().code(), ErrorCode::kDeadlineExceeded) << batch.error().ToString();
    EXPECT_THAT(batch.error().message(), HasSubstr("no Forebay daemon answers"));
  }
  daemon.Start();
  const auto batch = stream->Next();
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_EQ((*batch)->step(), StepId(1));
}

TEST(StreamRetryTest, ATriedAgainBatchOutlivesADaemonThatIsRestartedMeanwhile) {
  FakeDaemon daemon;
  Refusals refusals(daemon, ~0ULL);
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(1));
  std::optional<StepId> got;
  {
    std::jthread reader([&] {
      const auto batch = stream->Next();
      if (batch.has_value() && *batch) got = (*batch)->step();
    });
    EXPECT_TRUE(Soon([&] { return refusals.count() >= 3; }));
    daemon.Stop();
    refusals.End();
    daemon.Start();
  }
  EXPECT_EQ(got, StepId(0));
  EXPECT_EQ(stream->stats().reconnects, 1U);
}

TEST(StreamRetryTest, ATransformHooksErrorIsFinalWhateverItsCode) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(0);
  std::atomic<int> calls = 0;
  options.transform = [&](const TransformInput&) -> Status {
    ++calls;
    return Error(ErrorCode::kUnavailable, "the hook's own server is away");
  };
  options.transform_bytes = 8;
  auto stream = Open(*client, options);
  for (int call = 0; call < 2; ++call) {
    const auto batch = stream->Next();
    ASSERT_FALSE(batch.has_value());
    EXPECT_THAT(batch.error().message(), HasSubstr("the hook's own server"));
    EXPECT_EQ(batch.error().code(), ErrorCode::kInternal) << "nothing is gained by trying again";
  }
  EXPECT_EQ(stream->Finish().error().code(), ErrorCode::kInternal);
  EXPECT_EQ(daemon.counters.batches, 1U);
  EXPECT_GT(calls, 0);
}

TEST(StreamRetryTest, RefusesTimesThatCannotBe) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  for (const std::int64_t retry_for_ms : {std::int64_t{-1}, limits::kStreamRetryMsMax + 1}) {
    StreamOptions options = FakeStream(1);
    options.retry_for_ms = retry_for_ms;
    const auto stream = client->Open(options);
    ASSERT_FALSE(stream.has_value());
    EXPECT_EQ(stream.error().code(), ErrorCode::kOutOfRange);
    EXPECT_THAT(stream.error().message(), HasSubstr("retry_for_ms"));
  }
}

}  // namespace forebay::stream_retry_test
