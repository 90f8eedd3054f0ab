// Waiting threads and changes, without any memory: a try is whatever a test says that it is.
#include "server/tier/ram/memory_signal.h"

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::tier::memory_signal_test {

using std::chrono::steady_clock;
constexpr auto kLong = std::chrono::seconds(60);

TEST(MemorySignal, AChangeBetweenTheTryAndTheWaitIsNotMissed) {
  MemorySignal signal;
  MemorySignal::Waiter waiter(signal);
  signal.Notify();
  EXPECT_TRUE(waiter.Await(steady_clock::now() + kLong));
}

TEST(MemorySignal, EachChangeIsOneTry) {
  MemorySignal signal;
  MemorySignal::Waiter waiter(signal);
  signal.Notify();
  signal.Notify();
  EXPECT_TRUE(waiter.Await(steady_clock::now() + kLong));
  EXPECT_FALSE(waiter.Await(steady_clock::now() + std::chrono::milliseconds(30)))
      << "nothing has changed since";
  signal.Notify();
  EXPECT_TRUE(waiter.Await(steady_clock::now() + kLong));
}

TEST(MemorySignal, ADeadlineThatHasPassedEndsTheWaitWhateverChanges) {
  MemorySignal signal;
  MemorySignal::Waiter waiter(signal);
  signal.Notify();
  EXPECT_FALSE(waiter.Await(steady_clock::now()));
}

TEST(MemorySignal, AWaitingThreadIsWoken) {
  MemorySignal signal;
  std::latch tried(1);
  bool is_told = false;
  std::thread thread([&] {
    MemorySignal::Waiter waiter(signal);
    tried.count_down();
    is_told = waiter.Await(steady_clock::now() + kLong);
  });
  tried.wait();
  EXPECT_EQ(signal.waiting(), 1U);
  signal.Notify();
  thread.join();
  EXPECT_TRUE(is_told);
  EXPECT_EQ(signal.waiting(), 0U);
}

// After one change, threads that all fail try once each, and no two of them at once.
TEST(MemorySignal, AfterAChangeAllTryOneAfterAnother) {
  MemorySignal signal;
  constexpr int kThreads = 8;
  std::latch came(kThreads);
  std::atomic<int> tries = 0, trying = 0, most = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      MemorySignal::Waiter waiter(signal);
      came.arrive_and_wait();
      if (!waiter.Await(steady_clock::now() + kLong)) return;
      most = std::max(most.load(), ++trying);
      ++tries;
      std::this_thread::yield();
      --trying;
      // The next one gets its turn when this one waits again, as after a try that failed.
      EXPECT_FALSE(waiter.Await(steady_clock::now() + std::chrono::milliseconds(20)));
    });
  }
  came.wait();
  signal.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tries, kThreads);
  EXPECT_EQ(most, 1);
}

// Pages that are given and taken by more threads than there are pages: in the end each thread has
// had one, though each page that is given back is one change only.
TEST(MemorySignal, NobodyIsForgotten) {
  MemorySignal signal;
  constexpr int kThreads = 16;
  constexpr int kRounds = 50;
  std::atomic<int> free_pages = 2;
  const auto take = [&] {
    int left = free_pages.load();
    while (left > 0 && !free_pages.compare_exchange_weak(left, left - 1)) {}
    return left > 0;
  };
  std::atomic<int> late = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        {
          MemorySignal::Waiter waiter(signal);
          while (!take()) {
            if (waiter.Await(steady_clock::now() + kLong)) continue;
            ++late;
            return;
          }
        }
        ++free_pages;
        signal.Notify();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(late, 0);
  EXPECT_EQ(free_pages, 2);
  EXPECT_EQ(signal.waiting(), 0U);
}

// A thread that gives up in its turn, or while another has it, does not stop those behind it.
TEST(MemorySignal, WhoeverGivesUpPassesTheTurnOn) {
  MemorySignal signal;
  std::optional<MemorySignal::Waiter> first;
  first.emplace(signal);
  std::latch tried(1);
  bool is_told = false;
  std::thread thread([&] {
    MemorySignal::Waiter waiter(signal);
    tried.count_down();
    is_told = waiter.Await(steady_clock::now() + kLong);
  });
  tried.wait();
  signal.Notify();
  ASSERT_TRUE(first->Await(steady_clock::now() + kLong));
  first.reset();
  thread.join();
  EXPECT_TRUE(is_told);
}

}  // namespace forebay::tier::memory_signal_test
