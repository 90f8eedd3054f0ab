// A feed that runs ahead hands out the same batches in the same order, once each, and ends.
#include "trainer/core/feed/ahead_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace forebay::train {
namespace {

using ::testing::HasSubstr;

// What the feed saw; outlives it.
struct Seen {
  std::atomic<std::uint64_t> asked = 0;
  std::atomic<bool> is_cancelled = false;
  std::atomic<bool> is_finished = false;
  std::promise<void> waits;  // fulfilled when Next waits for ever
};

// `steps` batches, then `last`.
class CountingFeed final : public Feed {
 public:
  enum class Last : std::uint8_t { kEnd, kError, kWait };
  CountingFeed(std::uint64_t steps, Last last, Seen& seen)
      : steps_(steps), last_(last), seen_(seen), cancelled_(cancel_.get_future()) {}

  Result<std::unique_ptr<FeedBatch>> Next() override {
    const std::uint64_t step = seen_.asked++;
    if (step < steps_) {
      auto batch = std::make_unique<FeedBatch>();
      batch->step = step;
      batch->hold = std::make_shared<std::uint64_t>(step);
      held_ = batch->hold;
      return batch;
    }
    if (last_ == Last::kEnd) return std::unique_ptr<FeedBatch>();
    if (last_ == Last::kError) return Error(ErrorCode::kDataLoss, "a bad batch");
    seen_.waits.set_value();
    cancelled_.wait();
    return Error(ErrorCode::kCancelled, "cancelled");
  }
  std::uint64_t steps_per_epoch() const override { return steps_; }
  std::uint64_t sample_count() const override { return 10 * steps_; }
  std::uint64_t global_batch() const override { return 10; }
  Status Finish() override {
    EXPECT_TRUE(held_.expired()) << "a batch is held beyond the feed's end";
    seen_.is_finished = true;
    return {};
  }
  void Cancel() override {
    seen_.is_cancelled = true;
    cancel_.set_value();
  }

 private:
  const std::uint64_t steps_;
  const Last last_;
  Seen& seen_;
  std::promise<void> cancel_;
  std::future<void> cancelled_;
  std::weak_ptr<const void> held_;
};

std::unique_ptr<AheadFeed> Ahead(std::uint64_t steps, CountingFeed::Last last, Seen& seen,
                                 AheadFeed::Prepare prepare = {}, std::uint32_t depth = 1) {
  return std::make_unique<AheadFeed>(std::make_unique<CountingFeed>(steps, last, seen), depth,
                                     std::move(prepare));
}

TEST(AheadFeed, GivesEveryBatchOnceInOrderAndStaysAtItsEnd) {
  Seen seen;
  const auto feed = Ahead(5, CountingFeed::Last::kEnd, seen);
  EXPECT_EQ(feed->steps_per_epoch(), 5U);
  EXPECT_EQ(feed->sample_count(), 50U);
  EXPECT_EQ(feed->global_batch(), 10U);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const auto next = feed->Next();
    ASSERT_TRUE(next.has_value() && *next != nullptr);
    EXPECT_EQ((*next)->step, step);
    EXPECT_LE(seen.asked, step + 2) << "no more than one batch ahead";
  }
  for (int again = 0; again < 2; ++again) {
    const auto end = feed->Next();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(*end, nullptr);
  }
  EXPECT_TRUE(feed->Finish().has_value());
  EXPECT_TRUE(seen.is_finished);
  EXPECT_FALSE(seen.is_cancelled);
}

TEST(AheadFeed, TakesAsManyAsItMayWhenTheReaderHasHadThoseBefore) {
  constexpr std::uint64_t kSteps = 7;
  constexpr std::uint32_t kDepth = 3;
  Seen seen;
  std::atomic<std::uint64_t> prepared = 0;
  const auto feed = Ahead(kSteps, CountingFeed::Last::kEnd, seen,
                          [&](FeedBatch& batch) { EXPECT_EQ(batch.step, prepared++); }, kDepth);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    // The reader has had what was taken before. So the feed takes as many again, of which the end
    // is the last one, and then nothing until the reader has had all of them.
    const std::uint64_t taken = std::min<std::uint64_t>(kDepth, kSteps + 1 - step);
    while (step % kDepth == 0 && feed->ready() < taken) std::this_thread::yield();
    const auto next = feed->Next();
    ASSERT_TRUE(next.has_value() && *next != nullptr);
    EXPECT_EQ((*next)->step, step);
    EXPECT_LE(seen.asked, (step / kDepth + (step % kDepth == kDepth - 1 ? 2 : 1)) * kDepth);
  }
  const auto end = feed->Next();
  EXPECT_TRUE(end.has_value() && *end == nullptr);
}

TEST(AheadFeed, PreparesBatchesBeforeTheyAreAskedFor) {
  Seen seen;
  std::promise<void> prepared;
  struct Mark final : PreparedBatch {};
  const auto feed = Ahead(1, CountingFeed::Last::kEnd, seen, [&](FeedBatch& batch) {
    batch.prepared = std::make_shared<Mark>();
    prepared.set_value();
  });
  prepared.get_future().wait();
  const auto next = feed->Next();
  ASSERT_TRUE(next.has_value() && *next != nullptr);
  EXPECT_NE((*next)->prepared, nullptr);
}

TEST(AheadFeed, AnErrorComesInItsPlaceAndStays) {
  Seen seen;
  const auto feed = Ahead(1, CountingFeed::Last::kError, seen);
  ASSERT_TRUE(feed->Next().has_value()) << "the batch before it is whole";
  for (int again = 0; again < 2; ++again) {
    const auto next = feed->Next();
    ASSERT_FALSE(next.has_value());
    EXPECT_EQ(next.error().code(), ErrorCode::kDataLoss);
    EXPECT_THAT(next.error().message(), HasSubstr("a bad batch"));
  }
  EXPECT_EQ(seen.asked, 2U) << "it is not asked again";
}

TEST(AheadFeed, FinishDropsTheBatchThatNobodyTook) {
  Seen seen;
  const auto feed = Ahead(5, CountingFeed::Last::kEnd, seen);
  ASSERT_TRUE(feed->Next().has_value());
  EXPECT_TRUE(feed->Finish().has_value());  // which checks that nothing is held
  const auto after = feed->Next();
  ASSERT_FALSE(after.has_value());
  EXPECT_EQ(after.error().code(), ErrorCode::kFailedPrecondition);
}

TEST(AheadFeed, GoneBeforeItsEndItCancelsAWaitThatMightBeLong) {
  Seen seen;
  auto feed = Ahead(0, CountingFeed::Last::kWait, seen);
  seen.waits.get_future().wait();
  feed.reset();
  EXPECT_TRUE(seen.is_cancelled);
  EXPECT_FALSE(seen.is_finished);
}

}  // namespace
}  // namespace forebay::train
