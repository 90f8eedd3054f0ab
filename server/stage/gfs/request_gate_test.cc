// Tests that the gate bounds the requests under way, admits them in order of priority, and lends
// the places of requests that are not answered.
#include "server/stage/gfs/request_gate.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"
#include "server/stage/gfs/gfs_throttle.h"

namespace forebay::stage::request_gate_test {

constexpr RequestGate::Group kObject = 1;
constexpr RequestGate::Group kOther = 2;

TEST(RequestGate, GivesOutItsPermitsAndNoMore) {
  io::ManualClock clock;
  RequestGate gate(2, clock);
  const Priority priority = 5;
  const auto first = gate.TryAcquire(priority, kObject);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(gate.TryAcquire(priority, kObject));
  EXPECT_FALSE(gate.TryAcquire(priority, kObject));
  gate.Release(*first);
  EXPECT_TRUE(gate.TryAcquire(priority, kObject));
}

// The cap of the job is four requests. Each of its two nodes has two of them. This node needs a
// third one, and borrows it from the other node.
TEST(RequestGate, TheShareOfTheJobsCapCountsToo) {
  io::ManualClock clock;
  GfsThrottle caps(clock);
  caps.Begin({.requests = 4, .node_requests_max = 3, .node_count = 2});
  RequestGate gate(3, clock, /*lent_max=*/0, &caps);
  const Priority priority = 5;
  const auto first = gate.TryAcquire(priority, kObject);
  ASSERT_TRUE(first && gate.TryAcquire(priority, kObject));
  EXPECT_FALSE(gate.TryAcquire(priority, kObject));
  constexpr std::int64_t kSecond = 1'000'000'000;
  clock.AdvanceNs(kSecond);
  const auto asks = caps.Tick([](NodeRank) { return true; });
  ASSERT_EQ(asks.size(), 1U);
  std::jthread waiter([&] { gate.Acquire(priority, kObject); });
  while (gate.waiting() == 0) std::this_thread::yield();
  caps.Answered(asks[0].node, asks[0].ask, {.requests = 1}, clock.NowNs());
  waiter.join();  // nobody wakes the waiter: it looks at the share again by itself
  EXPECT_EQ(caps.request_figures().borrowed, 1U);
  EXPECT_EQ(caps.request_figures().begun, 3U);
  gate.Release(*first);
  EXPECT_TRUE(gate.TryAcquire(priority, kObject));
  EXPECT_FALSE(gate.TryAcquire(priority, kObject));
}

// Nothing says when the GFS answers the request that has the share of the node.
TEST(RequestGate, AThreadThatWaitsForTheJobsCapIsNamed) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  io::ManualClock clock;
  GfsThrottle caps(clock);
  caps.Begin({.requests = 1, .node_requests_max = 3});
  RequestGate gate(3, clock, /*lent_max=*/0, &caps);
  const Priority priority = 5;
  const RequestGate::Permit under_way = gate.Acquire(priority, kObject);
  EXPECT_FALSE(caps.HasWaiters());
  std::jthread waiter([&] { gate.Release(gate.Acquire(priority, kOther)); });
  while (gate.waiting() == 0) std::this_thread::yield();
  EXPECT_TRUE(caps.HasWaiters());
  EXPECT_TRUE(caps.WaitingThreads(kSecond).empty());
  clock.AdvanceNs(kSecond);
  EXPECT_EQ(caps.WaitingThreads(kSecond), std::vector{waiter.get_id()});
  gate.Release(under_way);
  waiter.join();
  EXPECT_FALSE(caps.HasWaiters());
  EXPECT_TRUE(caps.WaitingThreads(0).empty());
}

TEST(RequestGate, LendsThePlacesOfRequestsThatGoOnForTooLong) {
  io::ManualClock clock;
  RequestGate gate(2, clock);
  const Priority priority = 5;
  const auto old = gate.TryAcquire(priority, kObject);
  clock.AdvanceNs(10);
  const auto young = gate.TryAcquire(priority, kOther);
  ASSERT_TRUE(old && young);
  clock.AdvanceNs(5);
  gate.LendPlacesOf(15);
  EXPECT_EQ(gate.lent(), 1U) << "the young one is not late";
  EXPECT_FALSE(gate.TryAcquire(priority, kObject)) << "its object has had its chance";
  const auto other = gate.TryAcquire(priority, kOther);
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(gate.TryAcquire(priority, kOther));
  gate.Release(*old);
  EXPECT_EQ(gate.lent(), 0U);
  EXPECT_FALSE(gate.TryAcquire(priority, kObject)) << "its place has gone to another";
  gate.Release(*other);
  gate.Release(*young);
  EXPECT_TRUE(gate.TryAcquire(priority, kObject));
  EXPECT_TRUE(gate.TryAcquire(priority, kObject));
  EXPECT_FALSE(gate.TryAcquire(priority, kObject));
}

TEST(RequestGate, ThereIsABoundToTheRequestsUnderWay) {
  io::ManualClock clock;
  RequestGate gate(2, clock);
  const Priority priority = 5;
  std::vector<RequestGate::Permit> permits;
  RequestGate::Group object = 0;
  for (int round = 0; round < 20; ++round) {
    while (const auto permit = gate.TryAcquire(priority, object++)) permits.push_back(*permit);
    clock.AdvanceNs(100);
    gate.LendPlacesOf(50);
  }
  EXPECT_EQ(permits.size(), 2 + 2 * RequestGate::kLentPerPermit);
  EXPECT_EQ(gate.lent(), 2 * RequestGate::kLentPerPermit);
  for (const RequestGate::Permit permit : permits) gate.Release(permit);
  EXPECT_TRUE(gate.TryAcquire(priority, kObject));
  EXPECT_TRUE(gate.TryAcquire(priority, kObject));
  EXPECT_FALSE(gate.TryAcquire(priority, kObject)) << "all is as it was";
}

TEST(RequestGate, WhoWaitsForAnotherObjectGetsALentPlaceAndTheOthersWait) {
  io::ManualClock clock;
  RequestGate gate(1, clock);
  const Priority first = 5;
  const Priority second = 6;
  const RequestGate::Permit hung = gate.Acquire(first, kObject);
  std::atomic<int> same = 0;
  std::jthread waits([&] {
    const RequestGate::Permit permit = gate.Acquire(first, kObject);
    ++same;
    gate.Release(permit);
  });
  while (gate.waiting() < 1) std::this_thread::yield();
  std::jthread other([&] { gate.Release(gate.Acquire(second, kOther)); });
  while (gate.waiting() < 2) std::this_thread::yield();
  EXPECT_TRUE(gate.BlockedThreads().empty());
  clock.AdvanceNs(100);
  gate.LendPlacesOf(50);
  other.join();
  EXPECT_EQ(same, 0) << "it came first, but for the same object";
  EXPECT_EQ(gate.BlockedThreads(), std::vector{waits.get_id()});
  gate.Release(hung);
  waits.join();
  EXPECT_EQ(same, 1);
  EXPECT_TRUE(gate.TryAcquire(second, kObject));
}

// Starts threads that each wait for the permit, and notes the order in which they get it.
class Waiters {
 public:
  explicit Waiters(RequestGate& gate) : gate_(gate) {}
  void Add(const Priority& priority, int name) {
    const std::size_t before = gate_.waiting();
    threads_.emplace_back([this, &priority, name] {
      const RequestGate::Permit permit = gate_.Acquire(priority, kObject);
      {
        std::lock_guard lock(mutex_);
        served_.push_back(name);
      }
      gate_.Release(permit);
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
  io::ManualClock clock;
  RequestGate gate(1, clock);
  const Priority holder = 0;
  const RequestGate::Permit held = gate.Acquire(holder, kObject);
  const Priority priorities[] = {30, 10, 20};
  Waiters waiters(gate);
  for (int i = 0; i < 3; ++i) waiters.Add(priorities[i], i);
  gate.Release(held);
  EXPECT_EQ(waiters.Join(), (std::vector<int>{1, 2, 0}));
}

// A demand that has requests under way cannot wait in the gate, so it says with a Want how many
// more it would make.
TEST(RequestGate, ADemandThatWantsMoreHoldsBackLaterDemandsAndTheBackground) {
  io::ManualClock clock;
  RequestGate gate(4, clock);
  const Priority demand = 5, later_demand = 9, earlier_demand = 3;
  const Priority background = kBackgroundPriority + 1;
  {
    RequestGate::Want want(gate, demand, kObject);
    want.Set(4);
    EXPECT_FALSE(gate.TryAcquire(background, kOther));
    EXPECT_FALSE(gate.TryAcquire(later_demand, kOther));
    EXPECT_TRUE(gate.TryAcquire(earlier_demand, kOther));
    EXPECT_TRUE(gate.TryAcquire(demand, kObject));
  }
  EXPECT_TRUE(gate.TryAcquire(later_demand, kOther));
  EXPECT_TRUE(gate.TryAcquire(background, kOther));
}

TEST(RequestGate, PlacesThatNoDemandWantsAreNotKeptFree) {
  io::ManualClock clock;
  RequestGate gate(5, clock);
  const Priority first = 5, second = 7, later = 9;
  RequestGate::Want want_first(gate, first, kObject), want_second(gate, second, kOther);
  want_first.Set(2);
  want_second.Set(1);
  ASSERT_TRUE(gate.TryAcquire(later, kOther)) << "four are left, and three are wanted";
  ASSERT_TRUE(gate.TryAcquire(later, kOther));
  EXPECT_FALSE(gate.TryAcquire(later, kOther));
  EXPECT_TRUE(gate.TryAcquire(second, kOther)) << "of three, two are wanted before it";
  want_second.Renew(0);
  EXPECT_FALSE(gate.TryAcquire(second, kOther));
  want_first.Set(1);
  EXPECT_TRUE(gate.TryAcquire(later, kOther));
}

TEST(RequestGate, BackgroundWorkThatWantsMoreHoldsBackNobody) {
  io::ManualClock clock;
  RequestGate gate(2, clock);
  const Priority early = kBackgroundPriority + 1, late = kBackgroundPriority + 2, demand = 5;
  RequestGate::Want want(gate, early, kObject);
  want.Set(2);
  EXPECT_TRUE(gate.TryAcquire(late, kOther));
  EXPECT_TRUE(gate.TryAcquire(demand, kOther));
}

TEST(RequestGate, AWaitingBackgroundRequestPassesWhenTheDemandHasAllItWants) {
  io::ManualClock clock;
  RequestGate gate(1, clock);
  const Priority demand = 5, background = kBackgroundPriority + 1;
  RequestGate::Want want(gate, demand, kObject);
  for (const bool ends : {false, true}) {
    want.Set(1);
    std::thread waiter([&] { gate.Release(gate.Acquire(background, kOther)); });
    while (gate.waiting() == 0) std::this_thread::yield();
    if (ends) {
      want.Renew(1);
      clock.AdvanceNs(RequestGate::kHoldBackMs * 1'000'000);  // nobody tells the waiter
    } else {
      want.Set(0);
    }
    waiter.join();
  }
}

TEST(RequestGate, ADemandThatGetsNothingForLongHoldsBackNobody) {
  constexpr std::int64_t kMs = 1'000'000;
  io::ManualClock clock;
  RequestGate gate(1, clock);
  const Priority demand = 5, later = 9, background = kBackgroundPriority + 1;
  const auto passes = [&](const Priority& priority) {
    const auto permit = gate.TryAcquire(priority, kOther);
    if (permit) gate.Release(*permit);
    return permit.has_value();
  };
  RequestGate::Want want(gate, demand, kObject);
  want.Set(1);
  clock.AdvanceNs(RequestGate::kHoldBackDemandsMs * kMs - 1);
  EXPECT_FALSE(passes(later));
  clock.AdvanceNs(1);
  EXPECT_TRUE(passes(later));
  EXPECT_FALSE(passes(background)) << "it has more time";
  clock.AdvanceNs((RequestGate::kHoldBackMs - RequestGate::kHoldBackDemandsMs) * kMs);
  EXPECT_TRUE(passes(background));
  want.Set(1);
  EXPECT_TRUE(passes(later)) << "what it wants does not count, but what it gets";
  want.Renew(1);
  EXPECT_FALSE(passes(later));
  EXPECT_FALSE(passes(background));
}

TEST(RequestGate, ADemandWhoseObjectDoesNotAnswerHoldsBackNobody) {
  io::ManualClock clock;
  RequestGate gate(1, clock);
  const Priority demand = 5, background = kBackgroundPriority + 1;
  const auto hung = gate.TryAcquire(demand, kObject);
  ASSERT_TRUE(hung.has_value());
  clock.AdvanceNs(100);
  RequestGate::Want want(gate, demand, kObject);
  want.Set(1);
  gate.LendPlacesOf(50);
  const auto other = gate.TryAcquire(background, kOther);
  ASSERT_TRUE(other.has_value());
  gate.Release(*other);
  gate.Release(*hung);
  EXPECT_FALSE(gate.TryAcquire(background, kOther)) << "it answers again";
}

TEST(RequestGate, APromotedWaiterIsServedAtItsNewRank) {
  io::ManualClock clock;
  RequestGate gate(1, clock);
  const Priority holder = 0;
  const RequestGate::Permit held = gate.Acquire(holder, kObject);
  Priority priorities[] = {10, 20, 30};
  Waiters waiters(gate);
  for (int i = 0; i < 3; ++i) waiters.Add(priorities[i], i);
  gate.Promote(priorities[2], 1);
  gate.Release(held);
  EXPECT_EQ(waiters.Join(), (std::vector<int>{2, 0, 1}));
}

TEST(RequestGate, PromotionLowersARankAndNeverRaisesIt) {
  io::ManualClock clock;
  RequestGate gate(1, clock);
  Priority priority = 100;
  gate.Promote(priority, 7);
  EXPECT_EQ(priority.load(), 7U);
  gate.Promote(priority, 50);
  EXPECT_EQ(priority.load(), 7U);
}

}  // namespace forebay::stage::request_gate_test
