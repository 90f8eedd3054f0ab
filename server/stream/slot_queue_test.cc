// Whom freed slot memory is given to: promised batches first, then waiting ones that it can help,
// and no others.
#include "server/stream/slot_queue.h"

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::stream {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Excess = SlotLedger::Excess;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kCapacity = 100 * kPage;

// Returns a stream whose batches have at most `bytes_max`, or an unknown size (0). The queue reads
// nothing else of it.
StreamSpec SpecOf(std::uint32_t credits, std::uint64_t bytes_max) {
  return {.catalog = nullptr,
          .form = nullptr,
          .selection = nullptr,
          .order = {},
          .plan = *StepPlan::Create({.sample_count = 100, .global_batch = 10}),
          .stream_name = {},
          .client = {},
          .credits = credits,
          .batch_bytes_max = bytes_max};
}

class FakeOwner : public BatchOwner {
 public:
  const StreamSpec& spec() const override { return spec_; }
  std::stop_token unwanted() const override { return stop_.get_token(); }
  std::uint64_t StepsUntil(const BatchName&) const override { return 0; }
  void Answer(std::span<AnsweredBatch>) override { ADD_FAILURE() << "the queue answers nobody"; }

  void Close() { stop_.request_stop(); }

 private:
  StreamSpec spec_ = SpecOf(1, kPage);
  std::stop_source stop_;
};

class SlotQueueTest : public ::testing::Test {
 protected:
  using JobRef = SlotQueue::JobRef;

  static std::shared_ptr<StreamSpec> Spec(std::uint32_t credits, std::uint64_t bytes_max = kPage) {
    return std::make_shared<StreamSpec>(SpecOf(credits, bytes_max));
  }

  std::shared_ptr<StreamSlots> Admit(std::uint32_t credits, const SlotNeed& need,
                                     std::uint64_t bytes_max = kPage) {
    auto slots = queue_.Admit(Spec(credits, bytes_max), need);
    EXPECT_TRUE(slots.has_value()) << slots.error().message();
    return *slots;
  }

  JobRef NewJob(const std::shared_ptr<StreamSlots>& slots, std::int64_t started_ns = 0) {
    auto job = std::make_shared<BatchJob>();
    job->owner = owner_;
    job->slots = slots;
    job->started_ns = started_ns;
    queue_.Promise(*slots, std::vector<JobRef>{job});
    return job;
  }

  // A batch of so many bytes, complete and with its reader.
  void Complete(const JobRef& job, std::uint64_t bytes) {
    ASSERT_TRUE(queue_.BeginAttempt(job, 0));
    ASSERT_EQ(queue_.TakeRoom(*job, bytes), Excess::kTaken);
    Start(queue_.EndAttempt(*job));
  }

  void Start(const SlotQueue::Jobs& jobs) {
    started_.insert(started_.end(), jobs.begin(), jobs.end());
  }
  // The jobs that were started since the last call.
  std::vector<JobRef> Started() { return std::exchange(started_, {}); }

  std::unique_ptr<tier::RamArena> memory_ =
      *tier::RamArena::Create({.capacity_bytes = kCapacity, .region_bytes = kCapacity});
  std::vector<JobRef> started_;
  SlotQueue queue_{*memory_};
  std::shared_ptr<FakeOwner> owner_ = std::make_shared<FakeOwner>();
};

TEST_F(SlotQueueTest, AStreamThatDoesNotFitIsRefusedUnlessItTakesViews) {
  const SlotNeed need = {.held_bytes = 30 * kPage};
  EXPECT_FALSE(queue_.Admit(Spec(4), need).has_value());
  const auto views = Spec(4);
  views->delivery = Delivery::kViews;
  const auto admitted = queue_.Admit(views, need);
  ASSERT_TRUE(admitted.has_value()) << admitted.error().message();
  EXPECT_EQ((*admitted)->need.held_bytes, 0U) << "views make do with what others leave";
  views->inline_payload = true;
  EXPECT_FALSE(queue_.Admit(views, need).has_value()) << "bytes in messages are always copied";
}

TEST_F(SlotQueueTest, AClientOfAnotherNodeLeavesRoomForAsLargeAStreamOfThisOne) {
  const SlotNeed need = {.held_bytes = 10 * kPage};
  const auto remote = Spec(4);
  remote->client.is_remote = true;
  ASSERT_TRUE(queue_.Admit(remote, need).has_value()) << "40 of 100 pages, and 40 more are free";
  const auto refused = queue_.Admit(remote, need);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("a client of another node"));
  Admit(4, need);
  const auto small = Spec(1);
  small->client.is_remote = true;
  EXPECT_TRUE(queue_.Admit(small, need).has_value()) << "the last 20 pages, for two of 10";
}

TEST_F(SlotQueueTest, WhatAStreamWasPromisedIsThereForTheNextOneWhenItIsDismissed) {
  const SlotNeed need = {.held_bytes = 20 * kPage};
  const auto first = Admit(4, need);
  EXPECT_FALSE(queue_.Admit(Spec(2), need).has_value());
  queue_.Dismiss(*first);
  EXPECT_TRUE(queue_.Admit(Spec(5), need).has_value());
}

// The two batches that were promised take nothing of what is left; the third waits as long as its
// stream may not have more, and gets the first promise that comes back.
TEST_F(SlotQueueTest, ABatchBeyondThePromiseGetsTheNextOneThatIsFree) {
  const auto slots = Admit(2, {.held_bytes = 40 * kPage});
  const JobRef first = NewJob(slots), second = NewJob(slots), third = NewJob(slots);
  EXPECT_TRUE(first->room.is_promised);
  EXPECT_TRUE(second->room.is_promised);
  EXPECT_FALSE(third->room.is_promised);
  Complete(first, 40 * kPage);
  Complete(second, 40 * kPage);
  EXPECT_FALSE(queue_.BeginAttempt(third, 0)) << "20 pages are left, and it takes 40";
  EXPECT_THAT(Started(), IsEmpty());
  Start(queue_.Release(*slots, std::vector{first->room}));
  EXPECT_THAT(Started(), ElementsAre(third));
  EXPECT_TRUE(third->room.is_promised);
  Complete(third, 40 * kPage);
}

TEST_F(SlotQueueTest, APromiseGoesToTheBatchThatWasPulledFirst) {
  const auto slots = Admit(1, {.held_bytes = 60 * kPage});
  const JobRef first = NewJob(slots), second = NewJob(slots), third = NewJob(slots);
  Complete(first, 60 * kPage);
  EXPECT_FALSE(queue_.BeginAttempt(third, 0));
  EXPECT_FALSE(queue_.BeginAttempt(second, 0)) << "parked after the third";
  Start(queue_.Release(*slots, std::vector{first->room}));
  EXPECT_THAT(Started(), ElementsAre(second)) << "the third still lacks room";
  Start(queue_.EndJob(*second));
  EXPECT_THAT(Started(), ElementsAre(third)) << "a batch that failed gives its promise back";
}

TEST_F(SlotQueueTest, OnlyThoseWhomTheMemoryHelpsAreStarted) {
  const auto full = Admit(1, {.held_bytes = 60 * kPage});
  const auto other = Admit(1, {.held_bytes = 10 * kPage});
  const JobRef held = NewJob(full), waiting = NewJob(full), of_other = NewJob(other);
  Complete(held, 60 * kPage);
  Complete(of_other, 10 * kPage);
  EXPECT_FALSE(queue_.BeginAttempt(waiting, 0));
  Start(queue_.Release(*other, std::vector{of_other->room}));
  EXPECT_THAT(Started(), IsEmpty()) << "it would find that it still lacks room";
  owner_->Close();
  const JobRef next = NewJob(other);
  Complete(next, 10 * kPage);
  Start(queue_.Release(*other, std::vector{next->room}));
  EXPECT_THAT(Started(), ElementsAre(waiting)) << "nobody wants it any more: it has to end";
}

TEST_F(SlotQueueTest, TheEndOfScratchStartsThoseThatWaitForScratchAndNoOthers) {
  const auto slots =
      Admit(3, {.held_bytes = 10 * kPage, .scratch_bytes = 50 * kPage});
  const auto full = Admit(1, {.held_bytes = 20 * kPage});
  const JobRef first = NewJob(slots), second = NewJob(slots);
  const JobRef held = NewJob(full), waiting = NewJob(full);
  Complete(held, 20 * kPage);
  EXPECT_FALSE(queue_.BeginAttempt(waiting, 0));
  EXPECT_TRUE(queue_.BeginAttempt(first, 50 * kPage));
  EXPECT_FALSE(queue_.BeginAttempt(second, 50 * kPage)) << "there is scratch for one batch";
  EXPECT_EQ(queue_.TakeRoom(*first, 10 * kPage), Excess::kTaken);
  Start(queue_.EndAttempt(*first));
  EXPECT_THAT(Started(), ElementsAre(second));
  EXPECT_TRUE(queue_.BeginAttempt(second, 50 * kPage));
}

// An attempt found no memory, but between its beginning and its end another thread may have given
// some back. Nobody would tell the job later, so ParkFailed has to notice it.
TEST_F(SlotQueueTest, AnAttemptThatFailedIsTriedAgainAtOnceIfMemoryWasFreedMeanwhile) {
  const auto slots = Admit(2, {}, 0);
  const JobRef job = NewJob(slots), other = NewJob(slots);
  job->is_starved = true;
  ASSERT_TRUE(queue_.BeginAttempt(job, 0));
  Start(queue_.EndJob(*other));
  Start(queue_.ParkFailed(job));
  EXPECT_THAT(Started(), ElementsAre(job));
  ASSERT_TRUE(queue_.BeginAttempt(job, 0));
  Start(queue_.ParkFailed(job));
  EXPECT_THAT(Started(), IsEmpty()) << "nothing was freed this time";
  Start(queue_.EndJob(*NewJob(slots)));
  EXPECT_THAT(Started(), ElementsAre(job));
}

TEST_F(SlotQueueTest, TheFirstFailureOfAJobHasOthersTriedAgainAndTheSecondHasNot) {
  const auto slots = Admit(2, {}, 0);
  const JobRef parked = NewJob(slots), job = NewJob(slots);
  parked->is_starved = true;
  ASSERT_TRUE(queue_.BeginAttempt(parked, 0));
  Start(queue_.ParkFailed(parked));
  ASSERT_THAT(Started(), IsEmpty());
  ASSERT_TRUE(queue_.BeginAttempt(job, 0));
  Start(queue_.ParkFailed(job));
  EXPECT_THAT(Started(), UnorderedElementsAre(parked, job))
      << "what the attempt held may be what they lacked";
  EXPECT_TRUE(job->is_starved);
  ASSERT_TRUE(queue_.BeginAttempt(parked, 0));
  Start(queue_.ParkFailed(parked));
  ASSERT_TRUE(queue_.BeginAttempt(job, 0));
  Start(queue_.ParkFailed(job));
  EXPECT_THAT(Started(), IsEmpty()) << "two that cannot both succeed would wake each other";
}

// After a failure an attempt is made alone, which waits until nobody else has scratch.
TEST_F(SlotQueueTest, AStarvedJobIsTriedAlone) {
  const auto slots = Admit(3, {}, 0);
  const JobRef starved = NewJob(slots), other = NewJob(slots);
  starved->is_starved = true;
  ASSERT_TRUE(queue_.BeginAttempt(other, kPage));
  EXPECT_FALSE(queue_.BeginAttempt(starved, kPage));
  Start(queue_.EndAttempt(*other));
  EXPECT_THAT(Started(), ElementsAre(starved));
  ASSERT_TRUE(queue_.BeginAttempt(starved, kPage));
  EXPECT_FALSE(queue_.BeginAttempt(other, kPage));
  Start(queue_.EndAttempt(*starved));
  EXPECT_THAT(Started(), ElementsAre(other));
}

// Slot memory that the ledger does not know of is free at the end of the attempt that took it.
TEST_F(SlotQueueTest, MemoryTakenUnaskedHelpsOthersWhenTheAttemptEnds) {
  const auto slots = Admit(2, {}, 0);
  const JobRef parked = NewJob(slots), job = NewJob(slots);
  parked->is_starved = true;
  ASSERT_TRUE(queue_.BeginAttempt(parked, 0));
  Start(queue_.ParkFailed(parked));
  job->takes_unasked = true;
  ASSERT_TRUE(queue_.BeginAttempt(job, 0));
  Start(queue_.EndAttempt(*job));
  EXPECT_THAT(Started(), ElementsAre(parked));
}

TEST_F(SlotQueueTest, ABatchLargerThanPromisedTakesWhatIsLeftAndGivesItBack) {
  const auto slots = Admit(2, {.held_bytes = 10 * kPage}, 0);
  const JobRef first = NewJob(slots), second = NewJob(slots);
  EXPECT_EQ(queue_.TakeRoom(*first, 91 * kPage), Excess::kNever)
      << "20 pages are promised, and 81 more are not there even if nobody had any";
  EXPECT_EQ(queue_.TakeRoom(*first, 60 * kPage), Excess::kTaken);
  EXPECT_EQ(queue_.TakeRoom(*second, 60 * kPage), Excess::kNotNow);
  EXPECT_EQ(second->room.excess_bytes, 0U);
  Start(queue_.Release(*slots, std::vector{first->room}));
  EXPECT_EQ(queue_.TakeRoom(*second, 60 * kPage), Excess::kTaken);
  Start(queue_.Release(*slots, std::vector{second->room}));
  EXPECT_EQ(queue_.TakeRoom(*NewJob(slots), 90 * kPage), Excess::kTaken);
}

TEST_F(SlotQueueTest, ABatchThatCanDoWithoutLeavesOthersTheirShare) {
  const auto slots = Admit(2, {});
  const JobRef first = NewJob(slots), second = NewJob(slots);
  ASSERT_TRUE(second->room.is_promised);
  EXPECT_EQ(queue_.TakeRoom(*first, 60 * kPage, /*can_do_without=*/true), Excess::kTaken);
  EXPECT_EQ(queue_.TakeRoom(*second, 20 * kPage, /*can_do_without=*/true), Excess::kNotNow);
  EXPECT_EQ(queue_.TakeRoom(*second, 20 * kPage), Excess::kTaken);
}

TEST_F(SlotQueueTest, ThoseThatHaveWaitedTooLongAreTakenOutOnce) {
  const auto slots = Admit(1, {.held_bytes = 90 * kPage});
  const JobRef held = NewJob(slots, 1);
  Complete(held, 90 * kPage);
  const JobRef old = NewJob(slots, 2), young = NewJob(slots, 30);
  EXPECT_FALSE(queue_.BeginAttempt(old, 0));
  EXPECT_FALSE(queue_.BeginAttempt(young, 0));
  EXPECT_THAT(queue_.TakeExpired(1), IsEmpty());
  EXPECT_THAT(queue_.TakeExpired(2), ElementsAre(old));
  EXPECT_THAT(queue_.TakeExpired(2), IsEmpty());
  // The memory is for the one that still waits, not for the one that was told of its end.
  Start(queue_.EndJob(*old));
  Start(queue_.Release(*slots, std::vector{held->room}));
  EXPECT_THAT(Started(), ElementsAre(young));
}

}  // namespace
}  // namespace forebay::stream
