// QueueCrew: threads and queues, spare threads while others are blocked, surplus threads, the end.
#include "server/io/queue_crew.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/thread_annotations.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::io {
namespace {

using std::chrono::milliseconds;

// Threads that only wait until they are dismissed, or told to end.
class QueueCrewTest : public ::testing::Test {
 protected:
  ~QueueCrewTest() override { End(); }

  void Start(std::uint32_t threads) {
    auto made = QueueCrew::Create(backend_, {.threads = threads, .queue_depth = 4},
                                  [this](QueueCrew& crew, IoQueue& queue) { Body(crew, queue); });
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    crew_ = std::move(*made);
    AwaitCount(threads);
  }

  void Body(QueueCrew& crew, IoQueue& queue) {
    MutexLock lock(mutex_);
    queues_.insert(&queue);
    ids_.push_back(std::this_thread::get_id());
    changed_.NotifyAll();
    while (!(ends_ || (looks_ && crew.Dismisses()))) changed_.Wait(mutex_);
    queues_.erase(&queue);
    changed_.NotifyAll();
  }

  void AwaitCount(std::size_t count) {
    MutexLock lock(mutex_);
    const auto is_met = [&]() FOREBAY_REQUIRES(mutex_) { return queues_.size() == count; };
    EXPECT_TRUE(changed_.WaitFor(mutex_, std::chrono::seconds(60), is_met))
        << queues_.size() << " threads instead of " << count;
  }
  // A waiting thread asks whether it is surplus.
  void LetLook() {
    {
      MutexLock lock(mutex_);
      looks_ = true;
    }
    changed_.NotifyAll();
  }
  void End() {
    {
      MutexLock lock(mutex_);
      ends_ = true;
    }
    changed_.NotifyAll();
  }

  MemoryBackend backend_;
  Mutex mutex_;
  CondVar changed_;
  std::set<IoQueue*> queues_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<std::thread::id> ids_ FOREBAY_GUARDED_BY(mutex_);
  bool looks_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool ends_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::unique_ptr<QueueCrew> crew_;
};

TEST_F(QueueCrewTest, EveryThreadHasAQueueOfItsOwn) {
  Start(3);
  MutexLock lock(mutex_);
  EXPECT_EQ(queues_.size(), 3U);
  EXPECT_EQ(crew_->spare(), 0U);
  EXPECT_EQ(crew_->CountOf(ids_), 3U);
  EXPECT_EQ(crew_->CountOf(std::vector{std::this_thread::get_id()}), 0U);
}

TEST_F(QueueCrewTest, SpareThreadsComeForThoseThatAreHeldUpAndNoMoreThanThere) {
  Start(2);
  ASSERT_TRUE(crew_->AdjustTo(1).has_value());
  AwaitCount(3);
  ASSERT_TRUE(crew_->AdjustTo(1).has_value());
  AwaitCount(3);
  ASSERT_TRUE(crew_->AdjustTo(9).has_value());
  AwaitCount(4);
  EXPECT_EQ(crew_->spare(), 2U);
}

TEST_F(QueueCrewTest, SurplusThreadsLeaveAndOthersComeInTheirPlace) {
  Start(2);
  ASSERT_TRUE(crew_->AdjustTo(2).has_value());
  AwaitCount(4);
  ASSERT_TRUE(crew_->AdjustTo(0).has_value());
  LetLook();
  AwaitCount(2);
  EXPECT_EQ(crew_->spare(), 0U);
  ASSERT_TRUE(crew_->AdjustTo(1).has_value());
  AwaitCount(3);
}

TEST_F(QueueCrewTest, SaysWhetherAllHaveEnded) {
  Start(2);
  EXPECT_FALSE(crew_->AwaitEnd(milliseconds(1)));
  End();
  EXPECT_TRUE(crew_->AwaitEnd(milliseconds(20'000)));
}

TEST_F(QueueCrewTest, WhereAQueueCannotBeMadeNobodyBegins) {
  class FewQueues final : public IoBackend {
   public:
    std::string_view name() const override { return "few"; }
    Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) override {
      return inner.OpenDirectory(path);
    }
    Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) override {
      if (left-- == 0) return Error(ErrorCode::kResourceExhausted, "no more rings");
      return inner.CreateQueue(options);
    }
    MemoryBackend inner;
    int left = 2;
  };
  FewQueues few;
  std::atomic<int> begun = 0;
  const auto made =
      QueueCrew::Create(few, {.threads = 3}, [&](QueueCrew&, IoQueue&) { ++begun; });
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().message(), "no more rings");
  EXPECT_EQ(begun, 0);
}

TEST_F(QueueCrewTest, RefusesToHaveNoThreads) {
  EXPECT_FALSE(QueueCrew::Create(backend_, {.threads = 0}, [](QueueCrew&, IoQueue&) {}));
}

}  // namespace
}  // namespace forebay::io
