// A reader tells apart: a stream that was cancelled, one that has ended, and a daemon that is gone.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "forebay/v1/data.pb.h"

namespace forebay::stream_cancel_test {

using ::testing::HasSubstr;
using std::chrono::steady_clock;
using testing::Connect;
using testing::ExpectDataLoss;
using testing::FakeDaemon;
using testing::FakeStream;
using testing::Open;
using testing::Soon;

constexpr std::uint64_t kSteps = 62;

// Takes `steps` batches of a stream, each given back at once.
void Take(BatchStream& stream, std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto batch = stream.Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    ASSERT_TRUE(batch->has_value()) << "step " << step;
  }
}

template <typename T>
void ExpectCancelled(const Result<T>& result) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), ErrorCode::kCancelled) << result.error().ToString();
  EXPECT_THAT(result.error().message(), HasSubstr("cancelled by its reader"));
}

void ExpectEnded(BatchStream& stream) {
  const auto batch = stream.Next();
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_FALSE(batch->has_value());
}

TEST(StreamCancelTest, EveryCallThatCouldWaitSaysSo) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  Take(*stream, 3);
  stream->Cancel();
  stream->Cancel();
  ExpectCancelled(stream->Next());
  ExpectCancelled(stream->Next(steady_clock::time_point()));
  ExpectCancelled(stream->Pull({.step = StepId(5)}));
  ExpectCancelled(stream->Finish());
  ExpectCancelled(stream->Next());
}

TEST(StreamCancelTest, BeforeTheFirstBatchItIsNoEnd) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  stream->Cancel();
  ExpectCancelled(stream->Next());
}

TEST(StreamCancelTest, AnEndedStreamStaysEnded) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  Take(*stream, kSteps);
  ExpectEnded(*stream);
  stream->Cancel();
  ExpectEnded(*stream);
  ExpectCancelled(stream->Pull({.step = StepId(5)}));
  const Status finished = stream->Finish();
  EXPECT_TRUE(finished.has_value()) << finished.error().ToString();
}

TEST(StreamCancelTest, TheLastBatchIsTheEndWhetherTheReaderHasAskedOnOrNot) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  Take(*stream, kSteps);
  stream->Cancel();
  ExpectEnded(*stream);

  auto other = Open(*client, FakeStream(2));
  Take(*other, kSteps - 1);
  other->Cancel();
  ExpectCancelled(other->Next());
}

TEST(StreamCancelTest, AStreamWithoutStepsHasEnded) {
  FakeDaemon daemon({.samples = 10});
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  stream->Cancel();
  ExpectEnded(*stream);
}

TEST(StreamCancelTest, ATrailerThatDiffersIsFoundAfterACancelThatCameTooLate) {
  FakeDaemon daemon;
  daemon.faults.trailer = [](v1::Trailer& trailer) { trailer.set_samples(trailer.samples() + 1); };
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  Take(*stream, kSteps);
  stream->Cancel();
  ExpectDataLoss(stream->Finish().error(), "samples");
}

TEST(StreamCancelTest, ADaemonThatIsGoneIsNeitherCancelledNorEnded) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 3000});
  ASSERT_TRUE(client.has_value());
  auto stream = Open(**client, FakeStream(0));
  Take(*stream, 1);
  daemon.Stop();
  const auto gone = stream->Next();
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code(), ErrorCode::kUnavailable) << gone.error().ToString();
  EXPECT_THAT(gone.error().message(), HasSubstr(daemon.address()));
  stream->Cancel();
  ExpectCancelled(stream->Next());
}

TEST(StreamCancelTest, ACancelWhileTheDaemonIsLookedForIsReportedAsThat) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 3000});
  ASSERT_TRUE(client.has_value());
  auto stream = Open(**client, FakeStream(0));
  Take(*stream, 1);
  daemon.Stop();
  daemon.faults.stall_handshake = true;
  daemon.Start();
  std::optional<Error> met;
  {
    std::jthread reader([&] {
      const auto next = stream->Next();
      if (!next.has_value()) met = next.error();
    });
    EXPECT_TRUE(Soon([&] { return daemon.counters.connections == 2; }));
    stream->Cancel();
  }
  ASSERT_TRUE(met.has_value());
  EXPECT_EQ(met->code(), ErrorCode::kCancelled) << met->ToString();
}

TEST(StreamCancelTest, WakesAReaderWhoseDaemonIsSilent) {
  FakeDaemon daemon;
  daemon.faults.mute_after_batches = 1;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(0));
  Take(*stream, 1);
  std::optional<Error> met;
  {
    std::jthread reader([&] {
      const auto pulled = stream->Pull({.step = StepId(40)});
      if (!pulled.has_value()) met = pulled.error();
    });
    EXPECT_TRUE(Soon([&] { return daemon.counters.pulls == 2; }));
    stream->Cancel();
  }
  ASSERT_TRUE(met.has_value());
  EXPECT_EQ(met->code(), ErrorCode::kCancelled) << met->ToString();
}

TEST(StreamCancelTest, AFailedStreamKeepsItsError) {
  FakeDaemon daemon;
  daemon.faults.refuse = [](std::uint64_t) {
    return Error(ErrorCode::kDataLoss, "sample 17 does not match its checksum");
  };
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  ExpectDataLoss(stream->Next().error(), "sample 17");
  stream->Cancel();
  ExpectDataLoss(stream->Next().error(), "sample 17");
  ExpectDataLoss(stream->Finish().error(), "sample 17");
}

TEST(StreamCancelTest, WhatTheDaemonCancelsIsUnavailableAndMayBeAskedForAgain) {
  FakeDaemon daemon;
  bool refuses = true;
  daemon.faults.refuse = [&](std::uint64_t) -> std::optional<Error> {
    if (!std::exchange(refuses, false)) return std::nullopt;
    return Error(ErrorCode::kCancelled, "the stream was closed");
  };
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(1);
  options.retry_for_ms = 0;
  auto stream = Open(*client, options);
  const auto refused = stream->Next();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable) << refused.error().ToString();
  EXPECT_THAT(refused.error().message(), HasSubstr("cancelled by the daemon"));
  Take(*stream, kSteps);
  ExpectEnded(*stream);
}

}  // namespace forebay::stream_cancel_test
