// A call that ends while the program reads a batch, with a daemon that goes on: the daemon must not
// use the batch's memory again before the program has let go of it. The daemon here writes over
// each slot as soon as it is given back.
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/check.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::stream_cut_off_test {

using testing::Connect;
using testing::FakeDaemon;
using testing::FakeStream;
using testing::HasItsBytes;
using testing::Open;
using testing::Soon;

constexpr std::uint64_t kSteps = 62;

Batch Take(BatchStream& stream) {
  auto batch = stream.Next();
  EXPECT_TRUE(batch.has_value()) << batch.error().ToString();
  FOREBAY_CHECK(batch && *batch);
  return **batch;
}

// Records the requests with which streams were opened.
class Openings {
 public:
  explicit Openings(FakeDaemon& daemon) {
    daemon.faults.open_seen = [this](const v1::OpenStream& open) {
      const MutexLock lock(mutex_);
      seen_.push_back(open);
    };
  }
  std::vector<v1::OpenStream> seen() const {
    const MutexLock lock(mutex_);
    return seen_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<v1::OpenStream> seen_ FOREBAY_GUARDED_BY(mutex_);
};

TEST(StreamCutOff, ABatchThatIsReadMeanwhileKeepsItsBytes) {
  FakeDaemon daemon({.slots = 4});  // as many as the reader has credits
  Openings openings(daemon);
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(3));
  std::optional<Batch> held = Take(*stream);
  ASSERT_TRUE(HasItsBytes(*held));
  daemon.CutConnections();
  for (std::uint64_t step = 1; step < kSteps; ++step) {
    const Batch batch = Take(*stream);
    ASSERT_EQ(batch.step(), StepId(step));
    ASSERT_TRUE(HasItsBytes(batch));
    ASSERT_TRUE(HasItsBytes(*held)) << "after step " << step;
    if (step == kSteps / 2) held = batch;  // the first one goes back on the second call
  }
  held.reset();
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_EQ(stream->stats().reconnects, 1U);
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
  EXPECT_EQ(daemon.counters.credit_breaches, 0U);
  const std::vector<v1::OpenStream> seen = openings.seen();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NE(seen[0].reader(), 0U);
  EXPECT_EQ(seen[1].reader(), seen[0].reader());
  EXPECT_EQ(seen[0].still_held_size(), 0);
  EXPECT_GE(seen[1].still_held_size(), 1);
  EXPECT_GT(seen[1].call(), seen[0].call());
  EXPECT_TRUE(Soon([&] { return daemon.reader_count() == 0; }));
}

TEST(StreamCutOff, ManyCutsLoseAndRepeatNothing) {
  FakeDaemon daemon({.slots = 5});
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(4));
  std::vector<Batch> held;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (step % 7 == 3) daemon.CutConnections();
    held.push_back(Take(*stream));
    ASSERT_EQ(held.back().step(), StepId(step));
    for (const Batch& batch : held) ASSERT_TRUE(HasItsBytes(batch)) << "after step " << step;
    if (held.size() == 3) held.erase(held.begin() + static_cast<std::ptrdiff_t>(step % 3));
  }
  held.clear();
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_GE(stream->stats().reconnects, 1U);
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
  EXPECT_EQ(daemon.counters.credit_breaches, 0U);
}

TEST(StreamCutOff, WhatHasArrivedIsNotBroughtAgain) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(3));
  ASSERT_TRUE(Soon([&] { return daemon.counters.batches == 3; }));
  std::vector<Batch> held = {Take(*stream)};
  daemon.CutConnections();
  for (std::uint64_t step = 1; step < kSteps; ++step) {
    held.push_back(Take(*stream));
    ASSERT_EQ(held.back().step(), StepId(step));
    ASSERT_TRUE(HasItsBytes(held.front()) && HasItsBytes(held.back()));
    held.erase(held.begin());
  }
  held.clear();
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_LE(daemon.counters.batches, kSteps + 3) << "those that had not arrived yet";
}

// A worker may read a batch at the moment of the cut, and a hook may keep it.
TEST(StreamCutOff, WhatAHookReadsKeepsItsBytes) {
  FakeDaemon daemon({.slots = 4});
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(3);
  std::atomic<int> in_hook = 0;
  std::atomic<bool> goes_on = false;
  std::atomic<int> wrong = 0;
  options.transform_bytes = 1;
  options.transform_threads = 2;
  options.transform = [&](const TransformInput& input) -> Status {
    ++in_hook;
    while (!goes_on) std::this_thread::yield();
    if (!HasItsBytes(input.batch)) ++wrong;
    return {};
  };
  auto stream = Open(*client, options);
  ASSERT_TRUE(Soon([&] { return in_hook == 2; }));
  daemon.CutConnections();
  ASSERT_TRUE(Soon([&] { return daemon.counters.calls_ended == 1; }));
  std::thread reader([&] {
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const Batch batch = Take(*stream);
      EXPECT_EQ(batch.step(), StepId(step));
      EXPECT_TRUE(HasItsBytes(batch));
    }
  });
  ASSERT_TRUE(Soon([&] { return daemon.counters.connections == 2; }));
  goes_on = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
  EXPECT_EQ(daemon.counters.credit_breaches, 0U);
}

// The daemon has freed the batches all the same, for example because it cannot watch the process.
TEST(StreamCutOff, WhatTheDaemonHasNotKeptIsAskedForAgainAndNotReleased) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(3));
  constexpr std::uint64_t kOfFirstCall = 3;  // the one that is held, and two ahead
  ASSERT_TRUE(Soon([&] { return daemon.counters.batches == kOfFirstCall; }));
  std::optional<Batch> held = Take(*stream);
  daemon.faults.opened = [](v1::Opened& opened) { opened.clear_still_held(); };
  daemon.CutConnections();
  // Needs the new call, whether the end of the old one is known here already or not.
  ASSERT_TRUE(stream->Pull({.epoch = EpochId(1), .step = StepId(0)}).has_value());
  for (std::uint64_t step = 1; step < kSteps; ++step) {
    const Batch batch = Take(*stream);
    ASSERT_EQ(batch.step(), StepId(step));
    ASSERT_TRUE(HasItsBytes(batch));
  }
  held.reset();
  EXPECT_TRUE(stream->Finish().has_value());
  // On the second call: all but the first one, and the one that was asked for by name, which may
  // take the credit of another one.
  EXPECT_GE(daemon.counters.batches, kOfFirstCall + kSteps);
  EXPECT_EQ(daemon.counters.releases, daemon.counters.batches - kOfFirstCall);
}

TEST(StreamCutOff, AStreamThatIsClosedEarlyLeavesNothingAtTheDaemon) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  for (int round = 0; round < 20; ++round) {
    auto stream = Open(*client, FakeStream(3));
    std::optional<Batch> held = Take(*stream);
    stream.reset();
    ASSERT_EQ(daemon.reader_count(), 1U) << "the batch is still held";
    ASSERT_TRUE(HasItsBytes(*held));
    held.reset();
    ASSERT_TRUE(Soon([&] { return daemon.reader_count() == 0; }));
  }
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
}

TEST(StreamCutOff, OneThatIsNotOpenedAgainIsReportedByTheNextStream) {
  FakeDaemon daemon;
  Openings openings(daemon);
  auto client = Connect(daemon);
  auto stream = Open(*client, FakeStream(3));
  std::optional<Batch> held = Take(*stream);
  daemon.CutConnections();
  ASSERT_TRUE(Soon([&] { return daemon.counters.calls_ended == 1; }));
  EXPECT_EQ(daemon.reader_count(), 1U);
  stream.reset();
  ASSERT_TRUE(HasItsBytes(*held));
  held.reset();
  auto next = Open(*client, FakeStream(3));
  Take(*next);
  const std::vector<v1::OpenStream> seen = openings.seen();
  ASSERT_EQ(seen.size(), 2U);
  ASSERT_EQ(seen[1].gone_readers_size(), 1);
  EXPECT_EQ(seen[1].gone_readers(0), seen[0].reader());
  EXPECT_NE(seen[1].reader(), seen[0].reader());
  EXPECT_EQ(daemon.reader_count(), 1U);
}

// The program goes on with another client, and the daemon has sent a batch that never arrived.
TEST(StreamCutOff, AStreamOfAnotherClientReportsItToo) {
  FakeDaemon daemon;
  Openings openings(daemon);
  {
    auto client = Connect(daemon);
    auto stream = Open(*client, FakeStream(3));
    daemon.CutConnections();
    ASSERT_TRUE(Soon([&] { return daemon.counters.calls_ended == 1; }));
  }
  auto other = Connect(daemon);
  auto next = Open(*other, FakeStream(3));
  const std::vector<v1::OpenStream> seen = openings.seen();
  ASSERT_EQ(seen.size(), 2U);
  ASSERT_EQ(seen[1].gone_readers_size(), 1);
  EXPECT_EQ(seen[1].gone_readers(0), seen[0].reader());
  EXPECT_EQ(daemon.reader_count(), 1U);
}

}  // namespace forebay::stream_cut_off_test
