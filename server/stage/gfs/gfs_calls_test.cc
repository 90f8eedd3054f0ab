// Which calls are late or hung, by a clock that is moved by hand, and what is logged about them.
#include "server/stage/gfs/gfs_calls.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::stage::gfs_calls_test {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr GfsCalls::Object kObject = {.root = "/gfs", .path = "a.bin"};
constexpr GfsCalls::Object kOther = {.root = "/gfs", .path = "b.bin"};

class GfsCallsTest : public ::testing::Test {
 protected:
  void Pass(std::int64_t seconds) {
    clock_.AdvanceNs(seconds * kSecondNs);
    calls_.Look();
  }

  io::ManualClock clock_;
  GfsCalls calls_{/*hung_after_ms=*/30'000, clock_};
};

TEST_F(GfsCallsTest, ACallIsHungFromTheLimitOnUntilItEnds) {
  std::optional<GfsCalls::Call> call(std::in_place, calls_, "read", kObject);
  Pass(29);
  EXPECT_EQ(calls_.figures().hung, 0U);
  EXPECT_FALSE(calls_.AnyLate());
  Pass(1);
  EXPECT_EQ(calls_.figures().hung, 1U);
  EXPECT_EQ(calls_.figures().oldest, "read of '/gfs/a.bin'");
  Pass(12);
  EXPECT_EQ(calls_.figures().oldest_ms, 42'000);
  EXPECT_TRUE(calls_.IsLate(kObject));
  EXPECT_FALSE(calls_.IsLate(kOther));
  call.reset();
  const GfsCalls::Figures after = calls_.figures();
  EXPECT_EQ(after.hung, 0U);
  EXPECT_EQ(after.oldest, "");
  EXPECT_EQ(after.oldest_ms, 0);
  EXPECT_EQ(after.hung_total, 1U);
  EXPECT_FALSE(calls_.IsLate(kObject));
  EXPECT_FALSE(calls_.AnyLate());
}

TEST_F(GfsCallsTest, TheOldestOfManyIsNamedWhateverTheirOrder) {
  std::vector<std::unique_ptr<GfsCalls::Call>> calls;
  calls.push_back(std::make_unique<GfsCalls::Call>(calls_, "open", kOther));
  clock_.AdvanceNs(kSecondNs);
  calls.push_back(std::make_unique<GfsCalls::Call>(calls_, "read", kObject));
  calls.push_back(std::make_unique<GfsCalls::Call>(calls_, "read", kObject));
  Pass(40);
  EXPECT_EQ(calls_.figures().hung, 3U);
  EXPECT_EQ(calls_.figures().oldest, "open of '/gfs/b.bin'");
  EXPECT_EQ(calls_.UnderWay(), "open of '/gfs/b.bin' for 41.0 s, and 2 other calls");
  calls.erase(calls.begin());
  EXPECT_EQ(calls_.figures().oldest, "read of '/gfs/a.bin'");
  EXPECT_FALSE(calls_.IsLate(kOther));
  calls.pop_back();
  EXPECT_TRUE(calls_.IsLate(kObject)) << "another call about it goes on";
  calls.pop_back();
  EXPECT_FALSE(calls_.IsLate(kObject));
  EXPECT_EQ(calls_.figures().hung_total, 3U);
}

TEST_F(GfsCallsTest, SaysHowLongReadsTakeAndTheOldestCallIsUnderWay) {
  EXPECT_EQ(calls_.pace().longest_ns, 0);
  EXPECT_EQ(calls_.pace().oldest_ns, 0);
  std::optional<GfsCalls::Call> read(std::in_place, calls_, kReadCall, kObject);
  clock_.AdvanceNs(kSecondNs);
  std::optional<GfsCalls::Call> open(std::in_place, calls_, "open", kOther);
  clock_.AdvanceNs(kSecondNs);
  EXPECT_EQ(calls_.pace().oldest_ns, 2 * kSecondNs);
  read->Pause();
  EXPECT_EQ(calls_.pace().oldest_ns, 2 * kSecondNs) << "it fails, and is to be repeated";
  read->TryAgain();
  read->Hold();
  EXPECT_EQ(calls_.pace().oldest_ns, kSecondNs) << "the other one waits for the caps of the job";
  read->GoOn();
  read.reset();
  open.reset();
  EXPECT_EQ(calls_.pace().longest_ns, 2 * kSecondNs) << "only reads count";
  EXPECT_EQ(calls_.pace().oldest_ns, 0);
  EXPECT_EQ(calls_.pace().since_quick_ns, std::numeric_limits<std::int64_t>::max());
  { const GfsCalls::Call none(calls_, kReadCall, kObject); }
  EXPECT_EQ(calls_.pace().since_quick_ns, 0);
  EXPECT_EQ(calls_.pace().longest_ns, 2 * kSecondNs);
  clock_.AdvanceNs(29 * kSecondNs);
  EXPECT_EQ(calls_.pace().longest_ns, 2 * kSecondNs);
  EXPECT_EQ(calls_.pace().since_quick_ns, 29 * kSecondNs);
  clock_.AdvanceNs(60 * kSecondNs);
  EXPECT_EQ(calls_.pace().longest_ns, 2 * kSecondNs) << "nothing has ended since";
  read.emplace(calls_, kReadCall, kObject);
  clock_.AdvanceNs(kSecondNs);
  read.reset();
  EXPECT_EQ(calls_.pace().longest_ns, 2 * kSecondNs);
  clock_.AdvanceNs(30 * kSecondNs);
  EXPECT_EQ(calls_.pace().longest_ns, kSecondNs);
}

TEST_F(GfsCallsTest, CallsAreLateSoonerWhereTheDaemonSaysSo) {
  std::optional<GfsCalls::Call> call(std::in_place, calls_, "read", kObject);
  calls_.SetLateAfter(5 * kSecondNs);
  Pass(4);
  EXPECT_FALSE(calls_.IsLate(kObject));
  Pass(1);
  EXPECT_TRUE(calls_.IsLate(kObject));
  EXPECT_EQ(calls_.LateThreads().size(), 1U);
  EXPECT_EQ(calls_.figures().hung, 0U) << "only the log and the status call it hung";
  Pass(25);
  EXPECT_EQ(calls_.figures().hung, 1U);
  call.reset();
  EXPECT_FALSE(calls_.AnyLate());
  calls_.SetLateAfter(60 * kSecondNs);
  EXPECT_EQ(calls_.late_after_ns(), calls_.hung_after_ns()) << "not later";
}

TEST_F(GfsCallsTest, AFailureIsAnAnswerButTheCallStaysLate) {
  std::optional<GfsCalls::Call> call(std::in_place, calls_, "read", kObject);
  Pass(31);
  EXPECT_EQ(calls_.figures().hung, 1U);
  call->Pause();
  EXPECT_EQ(calls_.figures().hung, 0U);
  EXPECT_TRUE(calls_.IsLate(kObject));
  Pass(60);
  EXPECT_EQ(calls_.figures().hung, 0U) << "nobody asks at the moment";
  call->TryAgain();
  Pass(29);
  EXPECT_EQ(calls_.figures().hung, 0U);
  Pass(1);
  EXPECT_EQ(calls_.figures().hung, 1U);
  EXPECT_EQ(calls_.figures().oldest_ms, 30'000) << "since the last try";
  EXPECT_EQ(calls_.figures().hung_total, 2U);
  call.reset();
  EXPECT_FALSE(calls_.AnyLate());
}

TEST_F(GfsCallsTest, TimeInWhichACallIsHeldDoesNotCount) {
  GfsCalls::Call call(calls_, "read", kObject);
  Pass(20);
  call.Hold();
  Pass(60);
  EXPECT_FALSE(calls_.AnyLate());
  call.GoOn();
  Pass(9);
  EXPECT_FALSE(calls_.AnyLate());
  Pass(1);
  EXPECT_TRUE(calls_.IsLate(kObject)) << "30 s without the time in which it was held";
  EXPECT_EQ(calls_.figures().hung, 0U) << "its last try began 10 s ago";
  Pass(20);
  EXPECT_EQ(calls_.figures().hung, 1U);
  call.Hold();
  EXPECT_EQ(calls_.figures().hung, 0U) << "its thread is back";
}

TEST_F(GfsCallsTest, ThreadsThatWaitAreListedOnce) {
  const GfsCalls::Call first(calls_, "read", kObject);
  const GfsCalls::Call second(calls_, "read", kOther);
  std::optional<std::thread::id> others;
  std::optional<GfsCalls::Call> third;
  std::thread([&] {
    others = std::this_thread::get_id();
    third.emplace(calls_, "open", kOther);
  }).join();
  EXPECT_TRUE(calls_.LateThreads().empty());
  Pass(30);
  std::vector<std::thread::id> expected = {std::this_thread::get_id(), *others};
  std::ranges::sort(expected);
  EXPECT_EQ(calls_.LateThreads(), expected);
}

TEST_F(GfsCallsTest, CallsComeAndGoOnManyThreadsWhileOthersLook) {
  spdlog::set_level(spdlog::level::off);  // there are many lines
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int n = 0; n < 2000; ++n) {
        GfsCalls::Call call(calls_, "read", kObject);
        if (n % 3 == 0) call.Pause();
        if (n % 6 == 0) call.TryAgain();
      }
    });
  }
  for (int n = 0; n < 200; ++n) {
    Pass(7);
    (void)calls_.figures();
    (void)calls_.LateThreads();
    (void)calls_.UnderWay();
  }
  threads.clear();
  spdlog::set_level(spdlog::level::info);
  EXPECT_EQ(calls_.UnderWay(), "");
  EXPECT_FALSE(calls_.AnyLate());
  EXPECT_EQ(calls_.figures().hung, 0U);
}

}  // namespace forebay::stage::gfs_calls_test
