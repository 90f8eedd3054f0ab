// Who sends what a stream's caller gives back and asks for, and that it stays in order however
// many threads let go of batches.
#include <dlfcn.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"

namespace {

std::atomic<std::uint64_t> sends = 0;
thread_local std::uint64_t sends_here = 0;

}  // namespace

// Counts what gRPC sends, on all threads and on each, then sends it.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  using SendMessage = ssize_t (*)(int, const msghdr*, int);
  static const auto real = reinterpret_cast<SendMessage>(dlsym(RTLD_NEXT, "sendmsg"));
  ++sends;
  ++sends_here;
  return real(socket, message, flags);
}

namespace forebay {
namespace {

using testing::Connect;
using testing::FakeDaemon;
using testing::FakeStream;
using testing::Open;
using testing::Soon;

Batch Take(BatchStream& stream, std::uint64_t step) {
  auto batch = stream.Next();
  EXPECT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_EQ((*batch)->step(), StepId(step));
  return **batch;
}

TEST(StreamSender, ACallerThatHasWorkSendsNothing) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(4);
  std::atomic<std::uint64_t> begun = 0;
  options.transform = [&begun](const TransformInput& input) -> Status {
    if (input.index == 0) ++begun;
    return {};
  };
  auto stream = Open(*client, options);
  ASSERT_GT(sends, 0U) << "opening a stream sends, and this test sees it";
  const std::uint64_t requests = daemon.counters.requests;
  sends_here = 0;
  for (std::uint64_t step = 0; step < 60; ++step) {
    // With the worker at the next one, this one is ready.
    ASSERT_TRUE(Soon([&] { return begun >= step + 2; })) << "step " << step;
    Take(*stream, step);
  }
  EXPECT_EQ(sends_here, 0U);
  EXPECT_GT(daemon.counters.requests, requests + 10);
}

TEST(StreamSender, HalfAWindowIsReleasedAndAskedForInOneRequest) {
  FakeDaemon daemon;
  daemon.faults.mute_after_batches = 8;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(16));
  for (std::uint64_t step = 0; step < 7; ++step) Take(*stream, step);
  const std::uint64_t requests = daemon.counters.requests;
  EXPECT_EQ(daemon.counters.releases, 0U);
  // Held, so that it is not among the releases.
  const Batch last = Take(*stream, 7);
  EXPECT_TRUE(Soon([&] { return daemon.counters.releases == 7; }));
  EXPECT_EQ(daemon.counters.requests, requests + 1);
}

// The daemon may need what the caller gave back to bring the batch that the caller waits for.
TEST(StreamSender, NothingIsHeldBackWhileTheCallerWaits) {
  FakeDaemon daemon;
  daemon.faults.mute_after_batches = 3;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(16));
  for (std::uint64_t step = 0; step < 3; ++step) Take(*stream, step);
  EXPECT_EQ(daemon.counters.releases, 0U);
  std::thread waiting([&] {
    const auto batch = stream->Next();
    EXPECT_FALSE(batch.has_value());
  });
  EXPECT_TRUE(Soon([&] { return daemon.counters.releases == 3; }));
  stream->Cancel();
  waiting.join();
}

TEST(StreamSender, NothingIsHeldBackWhileTheCallerPolls) {
  FakeDaemon daemon;
  daemon.faults.mute_after_batches = 3;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(16));
  for (std::uint64_t step = 0; step < 3; ++step) Take(*stream, step);
  EXPECT_EQ(daemon.counters.releases, 0U);
  const auto batch = stream->Next(std::chrono::steady_clock::now());
  ASSERT_FALSE(batch.has_value());
  EXPECT_EQ(batch.error().code(), ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(Soon([&] { return daemon.counters.releases == 3; }));
}

// The batches that Pull or Finish wait for may need the credits of releases that are held back.
TEST(StreamSender, NothingIsHeldBackWhilePullOrFinishWaits) {
  FakeDaemon daemon;
  daemon.faults.mute_after_batches = 3;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(16));
  std::vector<Batch> held;
  for (std::uint64_t step = 0; step < 3; ++step) held.push_back(Take(*stream, step));
  const std::uint64_t pulls = daemon.counters.pulls;
  std::thread pulling([&] {
    EXPECT_FALSE(stream->Pull({.epoch = EpochId(0), .step = StepId(40)}).has_value());
  });
  EXPECT_TRUE(Soon([&] { return daemon.counters.pulls > pulls; }));
  EXPECT_EQ(daemon.counters.releases, 0U);
  held.clear();
  EXPECT_TRUE(Soon([&] { return daemon.counters.releases == 3; }));
  stream->Cancel();
  pulling.join();

  FakeDaemon other;
  other.faults.mute_after_batches = 3;
  auto second = Connect(other);
  auto finished = Open(*second, FakeStream(16));
  // The daemon may send its trailer before Cancel, so Finish may also succeed.
  std::thread finishing([&] { static_cast<void>(finished->Finish()); });
  EXPECT_TRUE(Soon([&] { return other.counters.releases == 3; }));
  finished->Cancel();
  finishing.join();
}

TEST(StreamSender, WhatAnotherThreadLetsGoOfIsSentWithoutACall) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(2));
  std::vector<Batch> held;
  for (std::uint64_t step = 0; step < 3; ++step) held.push_back(Take(*stream, step));
  std::thread([held = std::move(held)]() mutable { held.clear(); }).join();
  EXPECT_TRUE(Soon([&] { return daemon.counters.releases == 3 && daemon.counters.batches == 5; }));
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
}

// Finished, only dropped, or outlived by its batches: no call stays, none is released twice.
TEST(StreamSender, EndsWhileOthersLetGoOfBatches) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  constexpr std::uint64_t kRounds = 60;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    auto stream = Open(*client, FakeStream(4));
    std::vector<std::thread> others;
    for (std::uint64_t step = 0; step < 2 + round % 12; ++step) {
      others.emplace_back([batch = Take(*stream, step)] {
        EXPECT_EQ(batch.sample_count(), 16U);
      });
      if (others.size() == 3) {
        others.front().join();
        others.erase(others.begin());
      }
    }
    if (round % 3 == 0) {
      EXPECT_TRUE(stream->Finish().has_value());
    }
    if (round % 3 == 1) stream.reset();
    for (std::thread& other : others) other.join();
  }
  EXPECT_TRUE(Soon([&] { return daemon.counters.calls_ended == kRounds; }));
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
  EXPECT_EQ(daemon.counters.credit_breaches, 0U);
}

TEST(StreamSender, GoesOnWithTheNextDaemon) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(4);
  options.epochs = 2;
  auto stream = Open(*client, options);
  std::uint64_t step = 0;
  for (std::uint64_t life = 1; life <= 3; ++life) {
    std::vector<Batch> held;
    for (int i = 0; i < 4; ++i) held.push_back(Take(*stream, step++));
    std::thread other([held = std::move(held)]() mutable { held.clear(); });
    daemon.Stop();
    daemon.Start();
    other.join();
    for (int i = 0; i < 8; ++i) Take(*stream, step++);
    EXPECT_GE(stream->stats().reconnects, 1U);
  }
  EXPECT_EQ(stream->stats().reconnects, 3U);
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
}

}  // namespace
}  // namespace forebay
