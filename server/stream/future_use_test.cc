// When samples are needed next, against a walk through the order.
#include "server/stream/future_use.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::future_use_test {

constexpr std::uint64_t kSamples = 203;
constexpr std::uint64_t kBatch = 8;

class FutureUseTest : public ::testing::Test {
 protected:
  void Start(const ServeFixture::Ask& ask, const ServeOptions& options = {}) {
    ASSERT_TRUE(
        backend_.AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, 64)).has_value());
    auto made = ServeFixture::Create(backend_, 64, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    ASSERT_TRUE(serve_->StageAll().has_value());
    sink_ = serve_->MakeSink();
    auto session = serve_->Open(ask, *sink_);
    ASSERT_TRUE(session.has_value()) << session.error().ToString();
    spec_ = std::make_shared<const StreamSpec>((*session)->spec());
    (*session)->Close();
    future_ = std::make_unique<StreamFuture>(spec_, serve_->arena().memory_signal());
  }

  // Steps from `position` on until this rank needs any of the samples, by looking at all
  // positions of two epochs in turn.
  std::uint64_t Walked(std::uint32_t epoch, std::uint64_t position,
                       const fetch::UnitSamples& unit) const {
    for (std::uint32_t later = 0; later < 2; ++later) {
      const Order order(spec_->order, EpochId(epoch + later));
      std::uint64_t from = later == 0 ? position : 0;
      if (unit.epoch == EpochId(epoch + later)) from = std::max(from, unit.after);
      for (std::uint64_t at = from; at < kSamples; ++at) {
        const std::uint64_t sample = order.Forward(Position(at));
        const bool is_mine = at % kBatch / (kBatch / spec_->plan.ranks()) == spec_->rank;
        if (unit.is_part && unit.epoch != EpochId(epoch + later)) break;
        if (!is_mine || sample < unit.first || sample >= unit.first + unit.count) continue;
        return (later * kSamples + at - std::min(position, later * kSamples + at)) / kBatch;
      }
    }
    return fetch::kNeverUsed;
  }

  void ExpectAsWalked() {
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
      for (std::uint64_t position = 0; position <= kSamples + 5; position += 7) {
        future_->Answered(EpochId(epoch), 0, position);
        for (std::uint64_t first = 0; first + 5 <= kSamples; first += 5) {
          for (const std::uint64_t after : {std::uint64_t{0}, position, position + 2 * kBatch}) {
            const fetch::UnitSamples unit{.first = first, .count = 5,
                                          .epoch = EpochId(epoch + first % 2), .after = after,
                                          .is_part = first % 3 == 0};
            ASSERT_EQ(future_->StepsUntilAny(unit), Walked(epoch, position, unit))
                << "epoch " << epoch << ", position " << position << ", samples from " << first
                << ", needed after " << after << ", part " << unit.is_part;
          }
        }
      }
    }
  }

  io::MemoryBackend backend_;
  std::unique_ptr<ServeFixture> serve_;
  std::unique_ptr<CollectingSink> sink_;
  std::shared_ptr<const StreamSpec> spec_;
  std::unique_ptr<StreamFuture> future_;
};

TEST_F(FutureUseTest, SaysWhatAWalkThroughAGlobalOrderSays) {
  Start({.batch = kBatch});
  ExpectAsWalked();
}

TEST_F(FutureUseTest, SaysWhatAWalkThroughABlockOrderSays) {
  Start({.batch = kBatch, .mode = OrderMode::kBlock, .block_samples = 8, .window_runs = 3});
  ExpectAsWalked();
}

TEST_F(FutureUseTest, SaysWhatAWalkThroughAPartialOrderSays) {
  Start({.batch = kBatch, .mode = OrderMode::kPartial, .block_samples = 8, .canonical_nodes = 4,
         .ranks = 2, .rank = 1});
  ExpectAsWalked();
}

TEST_F(FutureUseTest, LooksAtTheBatchesOfItsRankOnly) {
  Start({.batch = kBatch, .ranks = 4, .rank = 2});
  ExpectAsWalked();
}

// Batches become ready in any order. What the first one needs that has not come is needed now.
TEST_F(FutureUseTest, ABatchThatIsLateHoldsThePlaceOfItsReader) {
  Start({.batch = kBatch});
  const Order order(spec_->order, EpochId(0));
  const auto at = [&](std::uint64_t position) {
    return fetch::UnitSamples{.first = order.Forward(Position(position)), .count = 1};
  };
  future_->Asked(EpochId(0), kBatch);
  future_->Asked(EpochId(0), 2 * kBatch);
  future_->Asked(EpochId(0), 3 * kBatch);
  future_->Answered(EpochId(0), 2 * kBatch, 3 * kBatch);
  future_->Answered(EpochId(0), 3 * kBatch, std::nullopt);
  EXPECT_EQ(future_->StepsUntilAny(at(kBatch)), 0U);
  EXPECT_EQ(future_->StepsUntilAny(at(2 * kBatch)), 1U);
  EXPECT_EQ(future_->StepsUntilAny(at(5 * kBatch)), 4U);
  future_->Answered(EpochId(0), kBatch, std::nullopt);
  EXPECT_EQ(future_->StepsUntilAny(at(5 * kBatch)), 2U) << "it waits for nothing";
  future_->Asked(EpochId(0), kBatch);
  EXPECT_EQ(future_->StepsUntilAny(at(kBatch)), 0U) << "it asks again";
  future_->Answered(EpochId(0), kBatch, 2 * kBatch);
  EXPECT_EQ(future_->StepsUntilAny(at(5 * kBatch)), 3U);
}

TEST_F(FutureUseTest, StepsUntilABatchCountFromTheFirstOneThatHasNotCome) {
  Start({.batch = kBatch});
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(0), 0), 0U);
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(0), 4 * kBatch), 4U);
  future_->Asked(EpochId(0), kBatch);
  future_->Asked(EpochId(0), 2 * kBatch);
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(0), kBatch), 0U);
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(0), 2 * kBatch), 1U);
  future_->Answered(EpochId(0), kBatch, 2 * kBatch);
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(0), 2 * kBatch), 0U);
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(0), 0), 0U) << "asked for again";
  const std::uint64_t samples = spec_->plan.sample_count();
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(1), 3 * kBatch), samples / kBatch - 2 + 3);
  future_->Asked(EpochId(1), 0);
  future_->Answered(EpochId(0), 2 * kBatch, samples);
  EXPECT_EQ(future_->StepsUntilBatch(EpochId(1), 0), 0U);
}

// What was said of other positions, or of as many samples elsewhere, is not said again.
TEST_F(FutureUseTest, FollowsAReaderThatGoesBack) {
  Start({.batch = kBatch});
  for (const std::uint64_t position : {150U, 10U, 90U, 0U, 203U, 40U}) {
    future_->Answered(EpochId(1), 0, position);
    for (std::uint64_t first = 0; first < 200; ++first) {
      for (const std::uint32_t count : {1U, 3U}) {
        const fetch::UnitSamples unit{.first = first, .count = count};
        ASSERT_EQ(future_->StepsUntilAny(unit), Walked(1, position, unit)) << first;
      }
    }
  }
}

// Runs are extents, and windows are single runs, so at most one extent is being read.
TEST_F(FutureUseTest, WhatASlowerRankStillReadsIsNeededNow) {
  constexpr std::uint64_t kRun = 64;
  Start({.batch = kBatch, .mode = OrderMode::kBlock, .block_samples = kRun, .window_runs = 1,
         .ranks = 4, .rank = 1},
        {.extent_bytes = 4096});
  const Order order(spec_->order, EpochId(0));
  const auto extent_at = [&](std::uint64_t position) {
    return ExtentId(static_cast<std::uint32_t>(order.Forward(Position(position)) / kRun));
  };
  const ExtentId extent = extent_at(45);
  std::uint64_t end = 45;
  while (extent_at(end) == extent) ++end;
  future_->Answered(EpochId(0), 0, end);
  const std::uint64_t next_epoch = future_->StepsUntil(extent);
  ASSERT_GT(next_epoch, 0U);
  const fetch::ReaderPlace behind{.order = spec_->order.Fingerprint(), .rank = 0, .ranks = 4,
                                  .epoch = EpochId(0), .position = 45};
  // These say nothing about the stream.
  for (const auto& change : std::vector<std::function<void(fetch::ReaderPlace&)>>{
           [](fetch::ReaderPlace& place) { ++place.order; },
           [](fetch::ReaderPlace& place) { place.rank = 1; },  // this rank's own
           [](fetch::ReaderPlace& place) { place.rank = 4; },
           [](fetch::ReaderPlace& place) { place.ranks = 2; }}) {
    fetch::ReaderPlace changed = behind;
    change(changed);
    future_->Note(changed);
    EXPECT_EQ(future_->StepsUntil(extent), next_epoch);
  }
  future_->Note(behind);
  EXPECT_EQ(future_->StepsUntil(extent), 0U);
  // What this rank reads now is needed no later because of that.
  EXPECT_EQ(future_->StepsUntil(extent_at(end)), 0U);
  EXPECT_EQ(future_->StepsUntil(extent_at(end + kRun)), (end + kRun - end) / kBatch);
  // Another rank has got further, and then this one too.
  fetch::ReaderPlace other = behind;
  other.rank = 3;
  other.position = end + 1;
  future_->Note(other);
  EXPECT_EQ(future_->StepsUntil(extent), 0U);
  other.rank = 0;
  future_->Note(other);
  EXPECT_EQ(future_->StepsUntil(extent), next_epoch);
  // A rank that is a window and its credits behind is not waited for.
  future_->Note(behind);
  const std::uint64_t lag = kRun + spec_->credits * kBatch;
  future_->Answered(EpochId(0), 0, 45 + lag);
  EXPECT_EQ(future_->StepsUntil(extent), 0U);
  future_->Answered(EpochId(0), 0, 46 + lag);
  EXPECT_GT(future_->StepsUntil(extent), 0U);
  // The distance between the ranks is also counted over the end of an epoch.
  future_->Answered(EpochId(1), 0, 10);
  const ExtentId last = extent_at(kSamples - 1);
  fetch::ReaderPlace old = behind;
  old.position = kSamples - 2;
  future_->Note(old);
  EXPECT_EQ(future_->StepsUntil(last), 0U);
}

// An extent has no more than the 64 samples that are looked at, so the answers are exact.
TEST_F(FutureUseTest, SaysWhenAnExtentIsNeeded) {
  Start({.batch = kBatch}, {.extent_bytes = 4096});
  ASSERT_GE(spec_->catalog->extent_count(), 4U);
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    for (std::uint64_t position = 0; position < kSamples; position += 9) {
      future_->Answered(EpochId(epoch), 0, position);
      for (std::uint32_t extent = 0; extent < spec_->catalog->extent_count(); ++extent) {
        const catalog::ExtentInfo info = spec_->catalog->extent(ExtentId(extent));
        std::uint64_t first = kSamples, last = 0, next_first = kSamples;
        for (std::uint64_t i = 0; i < info.sample_count; ++i) {
          const std::uint64_t sample = info.first_sample.value() + i;
          const auto at = [&](std::uint32_t later) {
            return Order(spec_->order, EpochId(epoch + later)).Inverse(sample).value();
          };
          first = std::min(first, at(0));
          last = std::max(last, at(0));
          next_first = std::min(next_first, at(1));
        }
        const std::uint64_t expected =
            first >= position  ? (first - position) / kBatch
            : last >= position ? 0
                               : (kSamples - position + next_first) / kBatch;
        ASSERT_EQ(future_->StepsUntil(ExtentId(extent)), expected)
            << "epoch " << epoch << ", position " << position << ", extent " << extent;
        for (const std::uint64_t from : {expected / 2, expected, expected + 1, expected + 50,
                                         fetch::kNeverUsed}) {
          const std::uint64_t answer = future_->StepsUntil(ExtentId(extent), from);
          // Exact where it counts, and on the right side of `from` in any case.
          ASSERT_TRUE(expected < from ? answer < from : answer == expected)
              << answer << " for " << expected << " from " << from;
        }
      }
    }
  }
}

// Of 203 samples in one extent, more than are looked at, three in a hundred are selected.
TEST_F(FutureUseTest, FindsTheFewSelectedSamplesOfAnExtent) {
  Start({.batch = 1, .selection = "hash:0:0.03"});
  ASSERT_EQ(spec_->catalog->extent_count(), 1U);
  ASSERT_LT(spec_->selection->size(), 20U);
  future_->Answered(EpochId(0), 0, 0);
  EXPECT_EQ(future_->StepsUntil(ExtentId(0)), 0U) << "the first position is one of its samples";
}

TEST_F(FutureUseTest, NobodyNeedsWhatIsNotSelected) {
  Start({.batch = kBatch, .selection = "range:0:100"}, {.extent_bytes = 4096});
  for (std::uint32_t extent = 0; extent < spec_->catalog->extent_count(); ++extent) {
    const bool is_selected = spec_->catalog->extent(ExtentId(extent)).first_sample.value() < 100;
    for (const std::uint64_t exact_from : {std::uint64_t{0}, fetch::kNeverUsed}) {
      EXPECT_EQ(future_->StepsUntil(ExtentId(extent), exact_from) < fetch::kNeverUsed, is_selected);
    }
  }
  EXPECT_EQ(future_->StepsUntilAny({.first = 100, .count = 50}), fetch::kNeverUsed);
  EXPECT_NE(future_->StepsUntilAny({.first = 99, .count = 2}), fetch::kNeverUsed);
}

// A load that could not evict an extent, because it was needed too soon, waits for such a change.
TEST_F(FutureUseTest, EveryChangeOfNextUsesIsAChangeForLoadsThatWaitForMemory) {
  Start({.batch = kBatch});
  tier::MemorySignal signal;
  tier::MemorySignal::Waiter waiter(signal);
  const auto is_told = [&] {
    return waiter.Await(std::chrono::steady_clock::now() + std::chrono::seconds(60));
  };
  FutureUse streams(signal);
  const std::shared_ptr<StreamFuture> future = streams.Add(spec_);
  EXPECT_TRUE(is_told());
  future->Answered(EpochId(0), 0, kBatch);
  EXPECT_TRUE(is_told());
  streams.Remove(future.get());
  EXPECT_TRUE(is_told());
}

TEST_F(FutureUseTest, StreamsOpenAndCloseWhileOthersAreAsked) {
  Start({.batch = kBatch}, {.extent_bytes = 4096});
  FutureUse streams(serve_->arena().memory_signal());
  const tier::ExtentKey key = serve_->dataset().key(ExtentId(1));
  const std::shared_ptr<StreamFuture> stays = streams.Add(spec_);
  const std::uint64_t answer = streams.NextUse(key);
  ASSERT_NE(answer, fetch::kNeverUsed);
  std::atomic<bool> is_over = false;
  std::atomic<int> wrong = 0;
  std::thread asks([&] {
    while (!is_over) wrong += streams.NextUse(key) == answer ? 0 : 1;
  });
  for (int i = 0; i < 1000; ++i) {
    // The second stream has the order of the first, so the answer does not change. Its last
    // reference ends here.
    streams.Remove(streams.Add(spec_).get());
  }
  is_over = true;
  asks.join();
  EXPECT_EQ(wrong, 0);
  streams.Remove(stays.get());
  EXPECT_EQ(streams.NextUse(key), fetch::kNeverUsed);
}

}  // namespace forebay::stream::future_use_test
