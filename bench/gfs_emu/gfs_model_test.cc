// The cost model of gfs_emu, without FUSE and without waiting.
#include <gtest/gtest.h>

#include "bench/gfs_emu/gfs_presets.h"
#include "bench/gfs_emu/rate_queue.h"
#include "bench/gfs_emu/stream_tracker.h"

namespace forebay::bench::gfs_model_test {

constexpr std::uint64_t kMiB = 1024 * 1024;

TEST(GfsPresets, TsubameCollapsesBySixteenPointSeven) {
  const auto profile = FindGfsProfile("tsubame3");
  ASSERT_TRUE(profile);
  const double transfer_s = kTsubameRandomReadBytes / profile->bandwidth_bytes_per_s;
  const double random_s = transfer_s + static_cast<double>(profile->seek_ns) * 1e-9;
  EXPECT_NEAR(random_s / transfer_s, 150.0 / 9.0, 1e-3);
  EXPECT_DOUBLE_EQ(profile->bandwidth_bytes_per_s, 600e6);
  EXPECT_FALSE(FindGfsProfile("no such machine"));
}

TEST(RateQueue, WorkIsDoneOneAfterAnother) {
  RateQueue queue(0);
  EXPECT_EQ(queue.Reserve(1000, 10), 1010);
  EXPECT_EQ(queue.Reserve(1000, 10), 1020);
  EXPECT_EQ(queue.Reserve(5000, 10), 5010);
}

TEST(RateQueue, AnIdleMomentIsCaughtUpOnUpToTheBurst) {
  RateQueue queue(100);
  EXPECT_EQ(queue.Reserve(1000, 500), 1400);
  EXPECT_EQ(queue.Reserve(1450, 10), 1410);      // 50 ns idle: all caught up on
  EXPECT_EQ(queue.Reserve(100'000, 10), 99'910);  // long idle: 100 ns of it
}

TEST(RateQueue, ARefundShortensTheQueue) {
  RateQueue queue(0);
  EXPECT_EQ(queue.Reserve(0, 100), 100);
  queue.Refund(60);
  EXPECT_EQ(queue.Reserve(0, 10), 50);
}

TEST(StreamTracker, ContiguousReadsAfterAnOpenAreFree) {
  StreamTracker tracker;
  tracker.OnOpen();
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_FALSE(tracker.OnRead(i * kMiB, kMiB).seek);
}

TEST(StreamTracker, EveryJumpSeeks) {
  StreamTracker tracker;
  tracker.OnOpen();
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(tracker.OnRead((1 + i * 7919 % 101) * 16 * kMiB, 110'000).seek);
  }
}

TEST(StreamTracker, TheStartWithoutAnOpenSeeks) {
  StreamTracker tracker;
  EXPECT_TRUE(tracker.OnRead(0, kMiB).seek);
}

TEST(StreamTracker, SeveralInterleavedStreamsAreFree) {
  StreamTracker tracker;
  for (std::uint64_t stream = 0; stream < StreamTracker::kStreamsMax; ++stream) {
    EXPECT_TRUE(tracker.OnRead(stream * 64 * kMiB, kMiB).seek);
  }
  for (std::uint64_t i = 1; i < 10; ++i) {
    for (std::uint64_t stream = 0; stream < StreamTracker::kStreamsMax; ++stream) {
      EXPECT_FALSE(tracker.OnRead(stream * 64 * kMiB + i * kMiB, kMiB).seek);
    }
  }
}

TEST(StreamTracker, TheOldestStreamIsForgotten) {
  StreamTracker tracker;
  for (std::uint64_t stream = 0; stream <= StreamTracker::kStreamsMax; ++stream) {
    tracker.OnRead(stream * 64 * kMiB, kMiB);
  }
  EXPECT_TRUE(tracker.OnRead(kMiB, kMiB).seek);
}

TEST(StreamTracker, APieceOutOfOrderIsRefunded) {
  StreamTracker tracker;
  tracker.OnOpen();
  EXPECT_FALSE(tracker.OnRead(0, kMiB).seek);
  EXPECT_TRUE(tracker.OnRead(2 * kMiB, kMiB).seek);
  const auto verdict = tracker.OnRead(kMiB, kMiB);
  EXPECT_FALSE(verdict.seek);
  EXPECT_TRUE(verdict.refund);
  EXPECT_FALSE(tracker.OnRead(3 * kMiB, kMiB).seek);
}

TEST(StreamTracker, PiecesInReverseCostOneSeek) {
  StreamTracker tracker;
  int seeks = 0;
  for (std::uint64_t i = 8; i > 0; --i) {
    const auto verdict = tracker.OnRead(i * kMiB, kMiB);
    seeks += (verdict.seek ? 1 : 0) - (verdict.refund ? 1 : 0);
  }
  EXPECT_EQ(seeks, 1);
}

TEST(StreamTracker, AGapOrOverlapOfAPageContinues) {
  StreamTracker tracker;
  tracker.OnRead(0, kMiB);
  EXPECT_FALSE(tracker.OnRead(kMiB + 4096, kMiB).seek);
  EXPECT_FALSE(tracker.OnRead(2 * kMiB, kMiB).seek);
  EXPECT_TRUE(tracker.OnRead(3 * kMiB + 4097, kMiB).seek);
}

TEST(StreamTracker, ASmallReadIsNotJoinedToItself) {
  StreamTracker tracker;
  EXPECT_TRUE(tracker.OnRead(100'000, 100).seek);
  const auto verdict = tracker.OnRead(100'100, 100);
  EXPECT_FALSE(verdict.seek);
  EXPECT_FALSE(verdict.refund);
}

}  // namespace forebay::bench::gfs_model_test
