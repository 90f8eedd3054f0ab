// Watchdogs of ranks that are threads, and of ranks that the test plays itself.
#include "trainer/comm/watchdog/watchdog.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <thread>

#include "proto/contract/thread_annotations.h"
#include "trainer/comm/transport/local_transport.h"
#include "trainer/comm/watchdog/beat_link.h"

namespace forebay::train {
namespace {

constexpr std::chrono::seconds kPatience(20);

// What a watchdog said.
class Log {
 public:
  WatchdogOptions Options(const RankWatchOptions& watch) {
    return {.watch = watch,
            .launcher_ns = 50'000'000,
            .print = [this](const std::string& line) { Add(line, false); },
            .end_job = [this] { Add("", true); }};
  }
  // Whether it was printed in time.
  bool Await(const std::string& part) {
    const MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, kPatience, [&]() FOREBAY_REQUIRES(mutex_) {
      return text_.find(part) != std::string::npos;
    });
  }
  bool AwaitEnd() {
    const MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, kPatience,
                            [&]() FOREBAY_REQUIRES(mutex_) { return ended_; });
  }
  bool ended() const {
    const MutexLock lock(mutex_);
    return ended_;
  }
  std::string text() const {
    const MutexLock lock(mutex_);
    return text_;
  }

 private:
  void Add(const std::string& line, bool ends) {
    const MutexLock lock(mutex_);
    if (!ends) text_ += line + "\n";
    ended_ = ended_ || ends;
    changed_.NotifyAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::string text_ FOREBAY_GUARDED_BY(mutex_);
  bool ended_ FOREBAY_GUARDED_BY(mutex_) = false;
};

constexpr RankWatchOptions kPatient = {.limit_ns = 60'000'000'000, .report_ns = 60'000'000'000};

// Rank 0 with a watchdog; rank 1 is the test, which learns where to go.
class OneRank {
 public:
  explicit OneRank(const RankWatchOptions& watch) : ends_(MakeLocalTransports(2)) {
    Communicator other(std::move(ends_[1]));
    communicator_.emplace(std::move(ends_[0]));
    std::jthread start([&] {
      watchdog_ = Watchdog::Start(*communicator_, log.Options(watch)).value();
    });
    EXPECT_TRUE(other.Broadcast(std::as_writable_bytes(std::span(&point, 1)), 0).has_value());
    start.join();
    communicator_->progress().Enter("step 7");
    communicator_->progress().At("RECV", true);
  }

  UniqueFd Connect() const { return ConnectBeats(point, 10'000).value(); }
  Beat BeatOf(std::uint32_t rank) const {
    Beat beat;
    beat.job = point.job;
    beat.rank = rank;
    SetText(beat.host, "faraway");
    SetText(beat.text, "step 7, F micro-batch 3 of stage 1");
    return beat;
  }
  // Returns when rank 0 has taken the peer for what it says it is: it answers.
  static void AwaitAnswer(BeatConnection& connection) {
    std::vector<Beat> beats;
    while (beats.empty() && connection.Receive(beats)) std::this_thread::yield();
    ASSERT_FALSE(beats.empty());
    EXPECT_EQ(beats.front().rank, 0U);
    EXPECT_EQ(TextOf(beats.front().text), "step 7, RECV");
    EXPECT_EQ(beats.front().waits, 1);
  }

  Log log;
  MeetingPoint point;

 private:
  std::vector<std::unique_ptr<Transport>> ends_;
  std::optional<Communicator> communicator_;
  std::unique_ptr<Watchdog> watchdog_;
};

TEST(WatchdogTest, AProcessThatDiesIsNamedAndEndsTheJob) {
  OneRank rank(kPatient);
  {
    BeatConnection connection(rank.Connect());
    ASSERT_TRUE(connection.Send(rank.BeatOf(1)));
    OneRank::AwaitAnswer(connection);
  }
  EXPECT_TRUE(rank.log.AwaitEnd());
  EXPECT_EQ(rank.log.text(),
            "rank 1 (host faraway) has gone; its last known instruction: step 7, F micro-batch 3 "
            "of stage 1; the job ends\n");
}

TEST(WatchdogTest, AProcessThatFallsSilentIsNamedAndEndsTheJob) {
  OneRank rank({.limit_ns = 400'000'000, .report_ns = 60'000'000'000});
  BeatConnection connection(rank.Connect());
  ASSERT_TRUE(connection.Send(rank.BeatOf(1)));
  EXPECT_TRUE(rank.log.AwaitEnd());
  EXPECT_EQ(rank.log.text().find("rank 1 (host faraway) has not been heard of for 0."), 0U)
      << rank.log.text();
  std::vector<Beat> beats;
  while (connection.Receive(beats)) {
    if (!beats.empty() && beats.back().last == kLastOfJob) break;
  }
  EXPECT_EQ(beats.back().last, kLastOfJob);
}

TEST(WatchdogTest, ARankThatHasDoneItsWorkMayGo) {
  OneRank rank(kPatient);
  BeatConnection first(rank.Connect());
  ASSERT_TRUE(first.Send(rank.BeatOf(1)));
  OneRank::AwaitAnswer(first);
  Beat last = rank.BeatOf(1);
  last.last = kLastOfRank;
  ASSERT_TRUE(first.Send(last));
  // Rank 0 closes its end once it has understood.
  std::vector<Beat> beats;
  while (first.Receive(beats)) std::this_thread::yield();
  EXPECT_FALSE(rank.log.ended());
  EXPECT_EQ(rank.log.text(), "");
}

TEST(WatchdogTest, WhoIsToldThatTheJobEndsSaysNothingMore) {
  OneRank rank(kPatient);
  BeatConnection connection(rank.Connect());
  Beat last = rank.BeatOf(1);
  ASSERT_TRUE(connection.Send(last));
  OneRank::AwaitAnswer(connection);
  last.last = kLastOfJob;
  ASSERT_TRUE(connection.Send(last));
  EXPECT_TRUE(rank.log.AwaitEnd());
  EXPECT_EQ(rank.log.text(), "");
}

TEST(WatchdogTest, StrangersAreHungUpOn) {
  OneRank rank(kPatient);
  Beat foreign = rank.BeatOf(1);
  foreign.job ^= 1;
  for (const Beat& wrong : {foreign, rank.BeatOf(0), rank.BeatOf(2)}) {
    BeatConnection connection(rank.Connect());
    ASSERT_TRUE(connection.Send(wrong));
    std::vector<Beat> beats;
    while (connection.Receive(beats)) std::this_thread::yield();
    EXPECT_TRUE(beats.empty());
  }
  EXPECT_FALSE(rank.log.ended());
}

TEST(WatchdogTest, ARankThatStandsStillIsReportedAndLives) {
  Log logs[2];
  auto ends = MakeLocalTransports(2);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank : {0U, 1U}) {
    threads.emplace_back([&, rank] {
      Communicator communicator(std::move(ends[rank]));
      const auto watchdog =
          Watchdog::Start(communicator, logs[rank].Options({.limit_ns = 60'000'000'000,
                                                            .report_ns = 2'000'000'000}))
              .value();
      communicator.progress().Enter("step 7");
      communicator.progress().At(rank == 1 ? "F micro-batch 3 of stage 1" : "RECV", rank == 0);
      EXPECT_TRUE(logs[0].Await("step 7, F micro-batch 3 of stage 1"));
      EXPECT_TRUE(communicator.Barrier().has_value());
    });
  }
  threads.clear();
  EXPECT_NE(logs[0].text().find("rank 1 (host " + HostName() + ") has been at one instruction"),
            std::string::npos)
      << logs[0].text();
  EXPECT_EQ(logs[0].text().find("RECV"), std::string::npos) << logs[0].text();
  EXPECT_FALSE(logs[0].ended());
  EXPECT_FALSE(logs[1].ended());
  EXPECT_EQ(logs[1].text(), "");
}

TEST(WatchdogTest, AJobOfOneRankHasNothingToWatch) {
  Communicator alone = Communicator::Alone();
  Log log;
  EXPECT_TRUE(Watchdog::Start(alone, log.Options(kPatient)).has_value());
}

TEST(BeatLinkTest, UnreachableHostsAreNamed) {
  MeetingPoint nowhere;
  SetText(nowhere.host, "elsewhere");
  const auto none = ConnectBeats(nowhere, 10);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message().find("elsewhere"), std::string::npos);
  // A port of this host on which nobody listens any more.
  MeetingPoint closed;
  { const UniqueFd listener = ListenForBeats(closed).value(); }
  const auto refused = ConnectBeats(closed, 10'000);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("127.0.0.1 port"), std::string::npos)
      << refused.error().message();
}

TEST(BeatLinkTest, LongTextsAreCut) {
  std::array<char, 8> room = {};
  SetText(room, "0123456789");
  EXPECT_EQ(TextOf(room), "0123456");
  SetText(room, "ab");
  EXPECT_EQ(TextOf(room), "ab");
}

}  // namespace
}  // namespace forebay::train
