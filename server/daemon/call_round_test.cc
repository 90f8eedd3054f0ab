// How many calls of a round are under way at a time, and that each is made once.
#include "server/daemon/call_round.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::daemon::call_round_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Calls that end when the test says so.
struct OpenCalls {
  CallRound::Call Call() {
    return [this](std::size_t index, const CallRound::Ended& ended) {
      made.push_back(index);
      open[index] = ended;
    };
  }
  void End(std::size_t index) {
    const CallRound::Ended ended = std::move(open.at(index));
    open.erase(index);
    ended();
  }

  std::vector<std::size_t> made;
  std::map<std::size_t, CallRound::Ended> open;
};

TEST(CallRound, SoManyCallsAreUnderWayAtATime) {
  OpenCalls calls;
  CallRound round(3);
  EXPECT_FALSE(round.is_under_way());
  round.Begin(6, calls.Call());
  EXPECT_THAT(calls.made, ElementsAre(0, 1, 2));
  calls.End(1);
  EXPECT_THAT(calls.made, ElementsAre(0, 1, 2, 3));
  calls.End(3);
  calls.End(0);
  EXPECT_THAT(calls.made, ElementsAre(0, 1, 2, 3, 4, 5));
  for (const std::size_t index : {2, 4, 5}) {
    EXPECT_TRUE(round.is_under_way());
    calls.End(index);
  }
  EXPECT_FALSE(round.is_under_way());
  EXPECT_EQ(calls.made.size(), 6U);
}

TEST(CallRound, FewCallsBeginAtOnce) {
  OpenCalls calls;
  CallRound round(256);
  round.Begin(4, calls.Call());
  EXPECT_THAT(calls.made, ElementsAre(0, 1, 2, 3));
}

TEST(CallRound, ARoundOfNoCallsHasEnded) {
  OpenCalls calls;
  CallRound round(1);
  round.Begin(0, calls.Call());
  EXPECT_FALSE(round.is_under_way());
  EXPECT_THAT(calls.made, IsEmpty());
}

// Each of them within the one before would take the whole stack.
TEST(CallRound, CallsThatEndAtOnceAreMadeOneAfterTheOther) {
  std::vector<std::size_t> made;
  CallRound round(2);
  round.Begin(100'000, [&made](std::size_t index, const CallRound::Ended& ended) {
    made.push_back(index);
    ended();
  });
  std::vector<std::size_t> all(100'000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(made, all);
  EXPECT_FALSE(round.is_under_way());
}

TEST(CallRound, SilentNodesDoNotHoldUpTheOthers) {
  OpenCalls calls;
  CallRound round(3);
  round.Begin(8, [&calls, open = calls.Call()](std::size_t index, const CallRound::Ended& ended) {
    if (index < 2) return open(index, ended);  // silent
    calls.made.push_back(index);
    ended();
  });
  EXPECT_THAT(calls.made, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(round.is_under_way());
}

TEST(CallRound, AfterStopNoFurtherCallIsMade) {
  OpenCalls calls;
  CallRound round(2);
  round.Begin(5, calls.Call());
  round.Stop();
  calls.End(0);
  EXPECT_TRUE(round.is_under_way()) << "one has not ended";
  calls.End(1);
  EXPECT_FALSE(round.is_under_way());
  round.Begin(5, calls.Call());
  EXPECT_THAT(calls.made, ElementsAre(0, 1));
}

TEST(CallRound, ACallMayEndAfterTheRoundIsDestroyed) {
  OpenCalls calls;
  {
    CallRound round(1);
    round.Begin(3, calls.Call());
  }
  calls.End(0);
  EXPECT_THAT(calls.made, ElementsAre(0));
}

TEST(CallRound, StopWaitsForACallThatIsBeingMade) {
  std::promise<void> is_made, may_return;
  std::atomic<bool> has_returned = false;
  CallRound::Ended ended;
  CallRound round(1);
  round.Begin(2, [&](std::size_t index, const CallRound::Ended& end) {
    if (index == 0) {
      ended = end;
      return;
    }
    is_made.set_value();
    may_return.get_future().wait();
    has_returned = true;
  });
  std::jthread ending([&ended] { ended(); });
  is_made.get_future().wait();
  std::jthread letting([&may_return] { may_return.set_value(); });
  round.Stop();
  EXPECT_TRUE(has_returned);
}

TEST(CallRound, CallsOfManyThreadsAreEachMadeOnce) {
  constexpr std::size_t kCalls = 500;
  constexpr int kAtATime = 16;
  std::vector<std::atomic<int>> made(kCalls);
  std::atomic<int> under_way = 0, most = 0;
  std::atomic<std::size_t> left = kCalls;
  std::promise<void> all_ended;
  CallRound round(kAtATime);
  std::vector<std::jthread> threads(kCalls);
  round.Begin(kCalls, [&](std::size_t index, const CallRound::Ended& ended) {
    ++made[index];
    const int now = ++under_way;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    threads[index] = std::jthread([&, ended] {
      --under_way;
      ended();
      if (--left == 0) all_ended.set_value();
    });
  });
  all_ended.get_future().wait();
  EXPECT_FALSE(round.is_under_way());
  for (const std::atomic<int>& times : made) EXPECT_EQ(times, 1);
  EXPECT_LE(most, kAtATime);
}

}  // namespace forebay::daemon::call_round_test
