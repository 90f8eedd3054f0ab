// Tasks run once, in order, never within Post, and are dropped, not run, at the end.
#include "server/io/executor.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::io {
namespace {

using io::testing::CodeOf;
using io::testing::Take;

class ExecutorTest : public ::testing::Test {
 protected:
  std::unique_ptr<ThreadExecutor> Make(std::uint32_t threads) {
    return Take(ThreadExecutor::Create(memory_, threads, 4));
  }
  MemoryBackend memory_;
};

// A gate at which tasks wait until the test opens it.
class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

TEST_F(ExecutorTest, OneThreadRunsTasksOnceInOrder) {
  auto executor = Make(1);
  std::vector<int> order;
  Gate done;
  for (int i = 0; i < 100; ++i) {
    executor->Post([&order, i](IoQueue&) { order.push_back(i); });
  }
  executor->Post([&](IoQueue&) { done.Open(); });
  done.Pass();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(ExecutorTest, ThreadsWorkSideBySideEachWithItsOwnQueue) {
  auto executor = Make(2);
  std::atomic<int> inside = 0;
  std::atomic<IoQueue*> queues[2] = {nullptr, nullptr};
  std::atomic<int> done = 0;
  for (int i = 0; i < 2; ++i) {
    executor->Post([&, i](IoQueue& queue) {
      queues[i] = &queue;
      ++inside;
      while (inside < 2) std::this_thread::yield();  // both are in here at once
      ++done;
    });
  }
  while (done < 2) std::this_thread::yield();
  EXPECT_NE(queues[0].load(), queues[1].load());
  EXPECT_EQ(queues[0].load()->depth(), 4u);
}

TEST_F(ExecutorTest, ATaskMayPostFromItsRun) {
  auto executor = Make(1);
  Gate done;
  bool is_within = true;
  executor->Post([&](IoQueue&) {
    executor->Post([&](IoQueue&) {
      EXPECT_FALSE(is_within) << "never within the call";
      done.Open();
    });
    is_within = false;
  });
  done.Pass();
}

TEST_F(ExecutorTest, TheEndFinishesWhatRunsAndDropsWhatWaits) {
  auto executor = Make(1);
  Gate gate;
  Gate running;
  auto owned = std::make_shared<int>(0);  // stands for a stream that a task owns
  std::atomic<int> ran = 0;
  executor->Post([&, raw = executor.get()](IoQueue&) {
    running.Open();
    gate.Pass();
    ++ran;
    raw->Post([&ran](IoQueue&) { ran += 100; });  // too late
  });
  running.Pass();
  for (int i = 0; i < 10; ++i) {
    executor->Post([&ran, owned](IoQueue&) { ran += 1000; });
  }
  executor->BeginStop();
  EXPECT_EQ(owned.use_count(), 1) << "what waited is dropped, though a task still runs";
  gate.Open();
  executor.reset();
  EXPECT_EQ(ran, 1) << "what ran was finished, and nothing else has begun";
}

TEST_F(ExecutorTest, ItsDestructorDropsWhatWaits) {
  auto executor = Make(1);
  Gate gate;
  Gate running;
  std::atomic<int> ran = 0;
  // The last owner of this is a task that waits: its end opens the gate for the one that runs.
  std::shared_ptr<Gate> opens_at_end(&gate, [](Gate* closed) { closed->Open(); });
  executor->Post([&](IoQueue&) {
    running.Open();
    gate.Pass();
    ++ran;
  });
  running.Pass();
  executor->Post([&ran, owned = std::move(opens_at_end)](IoQueue&) { ran += 1000; });
  executor.reset();
  EXPECT_EQ(ran, 1);
}

TEST_F(ExecutorTest, RefusesToHaveNoThreads) {
  EXPECT_EQ(CodeOf(ThreadExecutor::Create(memory_, 0, 4)), ErrorCode::kInvalidArgument);
}

TEST_F(ExecutorTest, AQueueThatCannotBeMadeIsAnError) {
  EXPECT_EQ(CodeOf(ThreadExecutor::Create(memory_, 1, 0)), ErrorCode::kInvalidArgument);
}

TEST_F(ExecutorTest, ASpareThreadGoesOnWhereATaskIsHeld) {
  auto executor = Make(1);
  Gate held;
  Gate done;
  std::atomic<std::thread::id> holder;
  Gate begun;
  executor->Post([&](IoQueue&) {
    holder = std::this_thread::get_id();
    begun.Open();
    held.Pass();
  });
  executor->Post([&](IoQueue&) { done.Open(); });
  begun.Pass();
  ASSERT_TRUE(executor->AdjustTo(std::vector{std::this_thread::get_id()}).has_value());
  EXPECT_FALSE(executor->AwaitStopped(std::chrono::milliseconds(1)));
  ASSERT_TRUE(executor->AdjustTo(std::vector{holder.load()}).has_value());
  done.Pass();
  held.Open();
}

TEST_F(ExecutorTest, StoppingSaysWhetherATaskIsHeld) {
  auto executor = Make(2);
  Gate held;
  Gate begun;
  executor->Post([&](IoQueue&) {
    begun.Open();
    held.Pass();
  });
  begun.Pass();
  executor->BeginStop();
  EXPECT_FALSE(executor->AwaitStopped(std::chrono::milliseconds(1)));
  held.Open();
  EXPECT_TRUE(executor->AwaitStopped(std::chrono::seconds(60)));
}

}  // namespace
}  // namespace forebay::io
