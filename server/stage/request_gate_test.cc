// The gate bounds what is under way and serves ranks in their order.
#include "server/stage/request_gate.h"

#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::stage {
namespace {

TEST(RequestGate, GivesOutItsPermitsAndNoMore) {
  RequestGate gate(2);
  const Rank rank = 5;
  EXPECT_TRUE(gate.TryAcquire(rank));
  EXPECT_TRUE(gate.TryAcquire(rank));
  EXPECT_FALSE(gate.TryAcquire(rank));
  gate.Release();
  EXPECT_TRUE(gate.TryAcquire(rank));
}

// Threads that each wait for the permit, and the order in which they got it.
class Waiters {
 public:
  explicit Waiters(RequestGate& gate) : gate_(gate) {}
  void Add(const Rank& rank, int name) {
    const std::size_t before = gate_.waiting();
    threads_.emplace_back([this, &rank, name] {
      gate_.Acquire(rank);
      {
        std::lock_guard lock(mutex_);
        served_.push_back(name);
      }
      gate_.Release();
    });
    while (gate_.waiting() == before) std::this_thread::yield();
  }
  std::vector<int> Join() {
    for (std::thread& thread : threads_) thread.join();
    return served_;
  }

 private:
  RequestGate& gate_;
  std::mutex mutex_;
  std::vector<int> served_;
  std::vector<std::thread> threads_;
};

TEST(RequestGate, ServesTheSmallestRankFirstWhoeverCameFirst) {
  RequestGate gate(1);
  const Rank holder = 0;
  gate.Acquire(holder);
  const Rank ranks[] = {30, 10, 20};
  Waiters waiters(gate);
  for (int i = 0; i < 3; ++i) waiters.Add(ranks[i], i);
  gate.Release();
  EXPECT_EQ(waiters.Join(), (std::vector<int>{1, 2, 0}));
}

TEST(RequestGate, APromotedWaiterIsServedAtItsNewRank) {
  RequestGate gate(1);
  const Rank holder = 0;
  gate.Acquire(holder);
  Rank ranks[] = {10, 20, 30};
  Waiters waiters(gate);
  for (int i = 0; i < 3; ++i) waiters.Add(ranks[i], i);
  gate.Promote(ranks[2], 1);
  gate.Release();
  EXPECT_EQ(waiters.Join(), (std::vector<int>{2, 0, 1}));
}

TEST(RequestGate, PromotionLowersARankAndNeverRaisesIt) {
  RequestGate gate(1);
  Rank rank = 100;
  gate.Promote(rank, 7);
  EXPECT_EQ(rank.load(), 7U);
  gate.Promote(rank, 50);
  EXPECT_EQ(rank.load(), 7U);
}

}  // namespace
}  // namespace forebay::stage
