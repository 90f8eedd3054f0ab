// Calls to the GFS wait for the caps of the job: the most urgent first, all kinds of calls, and
// none after Stop.
#include "server/stage/gfs/gfs_throttle.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/gfs/patient_backend.h"

namespace forebay::stage::gfs_throttle_test {

using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1'000 * kMs;

CapShareOptions Capped(double bytes, double opens, std::uint32_t nodes = 1) {
  return {.caps = {bytes, opens}, .node_count = nodes};
}

// Takes one open in a thread of its own, and notes its name then.
class Order {
 public:
  explicit Order(GfsThrottle& throttle) : throttle_(throttle) {}
  void Start(const std::string& name, const Priority* priority) {
    const std::size_t before = throttle_.WaitingThreads(0).size();
    threads_.emplace_back([this, name, priority] {
      std::optional<GfsThrottle::Caller> caller;
      if (priority != nullptr) caller.emplace(&throttle_, *priority);
      EXPECT_TRUE(throttle_.Take(Cap::kOpens, 1).has_value());
      const MutexLock lock(mutex_);
      names_.push_back(name);
    });
    while (throttle_.WaitingThreads(0).size() == before) std::this_thread::yield();
  }
  std::vector<std::string> AwaitNames(std::size_t count) {
    for (;;) {
      {
        const MutexLock lock(mutex_);
        if (names_.size() >= count) return names_;
      }
      std::this_thread::yield();
    }
  }

 private:
  GfsThrottle& throttle_;
  Mutex mutex_;
  std::vector<std::string> names_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

TEST(GfsThrottleTest, BeforeTheNodesAreKnownNothingWaits) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  EXPECT_TRUE(throttle.Take(Cap::kBytes, 1e15).has_value());
  EXPECT_THAT(throttle.Tick([](NodeRank) { return true; }), IsEmpty());
  EXPECT_EQ(throttle.Answer(NodeRank(1), {.wanted = {1, 1}, .lease = NodeRank(1)}), ShareAnswer{});
  throttle.Begin(Capped(1000, 0));
  EXPECT_FALSE(throttle.HasRoom(Cap::kBytes, 1));
  EXPECT_TRUE(throttle.HasRoom(Cap::kOpens, 1));
}

TEST(GfsThrottleTest, WithoutCapsNothingIsCountedAndStopFailsNothing) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(0, 0));
  throttle.Stop();
  const Priority priority(1);
  const GfsThrottle::Caller caller(&throttle, priority);
  for (const Cap cap : kCaps) {
    EXPECT_FALSE(throttle.IsCapped(cap));
    EXPECT_TRUE(throttle.Take(cap, 1e15).has_value()) << "reads under way end as without caps";
    EXPECT_TRUE(throttle.HasRoom(cap, 1e15));
    EXPECT_EQ(throttle.figures(cap).used, 0);
  }
  EXPECT_FALSE(throttle.HasWaiters());
}

TEST(GfsThrottleTest, TheMostUrgentCallGoesFirstAndAPromotionCounts) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(0, 25));
  const Priority demand(7);
  const Priority background(kBackgroundPriority + 1);
  Priority promoted(kBackgroundPriority + 2);
  Order order(throttle);
  order.Start("background", &background);
  order.Start("promoted", &promoted);
  order.Start("other", nullptr);
  order.Start("demand", &demand);
  EXPECT_FALSE(throttle.HasRoom(Cap::kOpens, 1));
  promoted = 8;
  // 40 ms are one open. Each of them is awaited, so that no more is saved up than for one.
  for (std::size_t i = 1; i <= 4; ++i) {
    clock.AdvanceNs(40 * kMs);
    order.AwaitNames(i);
  }
  EXPECT_THAT(order.AwaitNames(4), ElementsAre("demand", "promoted", "other", "background"));
  EXPECT_EQ(throttle.figures(Cap::kOpens).used, 4);
  EXPECT_GT(throttle.figures(Cap::kOpens).waited_s, 0.1);
}

TEST(GfsThrottleTest, EveryFourthTurnIsThatOfTheCallThatHasWaitedLongest) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(0, 25));
  const Priority background(kBackgroundPriority + 1);
  const Priority demand(1);
  Order order(throttle);
  order.Start("background", &background);
  order.Start("sizes", nullptr);
  for (const char* name : {"1", "2", "3", "4", "5"}) order.Start(name, &demand);
  for (std::size_t i = 1; i <= 7; ++i) {
    clock.AdvanceNs(40 * kMs);
    order.AwaitNames(i);
  }
  EXPECT_THAT(order.AwaitNames(7),
              ElementsAre("1", "2", "3", "sizes", "4", "5", "background"));
}

TEST(GfsThrottleTest, OfManyThreadsNoneIsForgotten) {
  constexpr std::size_t kThreads = 40;
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(0, 25));
  std::vector<Priority> priorities(kThreads);
  Order order(throttle);
  for (std::size_t i = 0; i < kThreads; ++i) {
    priorities[i] = (i % 3 == 0 ? kBackgroundPriority : 0) + i * 7 % kThreads;
    order.Start(std::to_string(i), &priorities[i]);
  }
  for (std::size_t i = 1; i <= kThreads; ++i) {
    // Others become the first ones, and nobody says so.
    priorities[i * 11 % kThreads] = i % 5;
    clock.AdvanceNs(40 * kMs);
    order.AwaitNames(i);
  }
  EXPECT_FALSE(throttle.HasWaiters());
}

TEST(GfsThrottleTest, StopEndsEveryWaitAndLaterCalls) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(1, 1));
  std::jthread stopper([&] {
    while (throttle.WaitingThreads(0).empty()) std::this_thread::yield();
    throttle.Stop();
  });
  EXPECT_EQ(CodeOf(throttle.Take(Cap::kOpens, 1)), ErrorCode::kCancelled);
  EXPECT_EQ(CodeOf(throttle.Take(Cap::kBytes, 1)), ErrorCode::kCancelled);
  throttle.Await(Cap::kBytes, 1);
  EXPECT_THAT(throttle.WaitingThreads(0), IsEmpty());
}

TEST(GfsThrottleTest, OnlyThreadsThatWaitForLongAreNamed) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(0, 1));
  std::jthread waiter([&] { (void)throttle.Take(Cap::kOpens, 1); });
  while (throttle.WaitingThreads(0).empty()) std::this_thread::yield();
  EXPECT_THAT(throttle.WaitingThreads(kMs), IsEmpty());
  clock.AdvanceNs(2 * kMs);
  EXPECT_THAT(throttle.WaitingThreads(kMs), ElementsAre(waiter.get_id()));
  throttle.Stop();
}

TEST(GfsThrottleTest, ShortWaitsOfOneCallerAreAddedUp) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(0, 25));
  const Priority priority(1);
  std::atomic<bool> has_taken = false;
  std::atomic<bool> may_end = false;
  std::jthread reader([&] {
    const GfsThrottle::Caller caller(&throttle, priority);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(throttle.Take(Cap::kOpens, 1).has_value());
    has_taken = true;
    while (!may_end) std::this_thread::yield();
  });
  while (!has_taken) {
    if (throttle.HasWaiters()) clock.AdvanceNs(kMs);
    std::this_thread::yield();
  }
  EXPECT_FALSE(throttle.HasWaiters());
  EXPECT_THAT(throttle.WaitingThreads(80 * kMs), ElementsAre(reader.get_id()))
      << "its four waits took 40 ms each";
  may_end = true;
  reader.join();
  EXPECT_THAT(throttle.WaitingThreads(0), IsEmpty());
}

TEST(GfsThrottleTest, WaitsForRequestsCountWithTheOtherWaitsOfTheirCaller) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin({.requests = 1, .node_requests_max = 1});
  const auto self = std::this_thread::get_id();
  {
    const Priority priority(1);
    const GfsThrottle::Caller caller(&throttle, priority);
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(throttle.HasWaiters());
      EXPECT_THAT(throttle.WaitingThreads(kSecond), IsEmpty());
      const GfsThrottle::RequestWait wait(&throttle);
      EXPECT_TRUE(throttle.HasWaiters());
      clock.AdvanceNs(400 * kMs);
      EXPECT_EQ(throttle.WaitingThreads(kSecond).size(), i == 2 ? 1U : 0U);
    }
    EXPECT_FALSE(throttle.HasWaiters());
    EXPECT_THAT(throttle.WaitingThreads(kSecond), ElementsAre(self)) << "while it has its Caller";
    const GfsThrottle::RequestWait wait(&throttle);
    EXPECT_THAT(throttle.WaitingThreads(kSecond), ElementsAre(self)) << "named once";
  }
  EXPECT_THAT(throttle.WaitingThreads(0), IsEmpty());
}

TEST(GfsThrottleTest, WithoutACapOnRequestsNoThreadCountsAsOneThatWaitsForThem) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  throttle.Begin(Capped(1000, 10));
  const GfsThrottle::RequestWait wait(&throttle);
  const GfsThrottle::RequestWait without(nullptr);
  EXPECT_FALSE(throttle.HasWaiters());
  EXPECT_THAT(throttle.WaitingThreads(0), IsEmpty());
}

// Directories and files of the GFS in memory.
class ThrottledBackendTest : public testing::Test {
 protected:
  ThrottledBackendTest() {
    EXPECT_TRUE(memory_.AddFile("/gfs/a/data.bin", Pattern(40'000, 1)).has_value());
    root_ = Take(backend_.OpenGfsDirectory("/gfs"));
    // So low that neither an open nor a read of 1,000 bytes can be saved up: each of them waits.
    throttle_.Begin(Capped(1e4, 10));
  }
  // Lets time pass while calls wait, until `call` has returned. A call that waits for the caps is
  // not late, although each wait takes longer than the GFS may take to answer.
  void Run(const std::function<void()>& call) {
    const std::jthread passing([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (throttle_.HasWaiters()) {
          clock_.AdvanceNs(100'000);
          calls_.Look();
          EXPECT_FALSE(calls_.AnyLate()) << calls_.UnderWay();
        }
        std::this_thread::yield();
      }
    });
    call();
  }
  double opens() const { return throttle_.figures(Cap::kOpens).used; }
  double bytes() const { return throttle_.figures(Cap::kBytes).used; }

  io::MemoryBackend memory_;
  io::FaultInjector faults_;
  io::FaultyBackend faulty_{memory_, faults_};
  io::ManualClock clock_;
  GfsCalls calls_{/*hung_after_ms=*/1, clock_};
  GfsThrottle throttle_{clock_};
  GfsPatience patience_{{.retry_for_ms = 60'000, .retry_max_interval_ms = 1}};
  PatientBackend backend_{faulty_, patience_, calls_, throttle_};
  std::unique_ptr<io::Directory> root_;
};

TEST_F(ThrottledBackendTest, EveryKindOfCallCounts) {
  Run([this] {
    const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
    EXPECT_EQ(opens(), 1);
    EXPECT_TRUE(file->Info().has_value());
    EXPECT_EQ(opens(), 1) << "a stat of an open file belongs to its open";
    EXPECT_TRUE(root_->Stat("a/data.bin").has_value());
    EXPECT_TRUE(root_->List("a").has_value());
    EXPECT_TRUE(root_->FreeSpace().has_value());
    EXPECT_EQ(opens(), 4);
    EXPECT_EQ(bytes(), 0);
    const auto queue = Take(backend_.CreateQueue({.depth = 2}));
    std::vector<std::byte> read(30'000);
    EXPECT_TRUE(io::ReadFully(*queue, *file, 0, read).has_value());
    EXPECT_EQ(bytes(), 30'000);
  });
  EXPECT_GE(clock_.NowNs(), 340 * kMs) << "four opens, at 10 per second";
}

TEST_F(ThrottledBackendTest, RepeatedCallsCountAgain) {
  Run([this] {
    faults_.Arm({.kind = io::FaultKind::kEio, .call = io::IoCall::kOpen});
    const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
    EXPECT_EQ(faults_.faults_injected(), 1U);
    EXPECT_EQ(opens(), 2);
    const auto queue = Take(backend_.CreateQueue({.depth = 2}));
    std::vector<std::byte> read(1'000);
    faults_.Arm({.kind = io::FaultKind::kEio, .call = io::IoCall::kRead});
    EXPECT_TRUE(io::ReadFully(*queue, *file, 0, read).has_value());
    EXPECT_EQ(faults_.faults_injected(), 2U);
    EXPECT_EQ(bytes(), 2'000);
  });
}

TEST_F(ThrottledBackendTest, CallsThatWaitToOpenAStaleFileAgainAreNotLate) {
  Run([this] {
    const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
    faults_.Arm({.kind = io::FaultKind::kStale, .call = io::IoCall::kInfo});
    EXPECT_TRUE(file->Info().has_value());
    EXPECT_EQ(opens(), 2);
    const auto queue = Take(backend_.CreateQueue({.depth = 2}));
    std::vector<std::byte> read(1'000);
    faults_.Arm({.kind = io::FaultKind::kStale, .call = io::IoCall::kRead});
    EXPECT_TRUE(io::ReadFully(*queue, *file, 0, read).has_value());
    EXPECT_EQ(faults_.faults_injected(), 2U);
    EXPECT_EQ(opens(), 3);
  });
}

TEST_F(ThrottledBackendTest, FilesOfTheNodeItselfDoNotCount) {
  const auto local = Take(backend_.OpenDirectory("/gfs"));
  const auto file = Take(local->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_.CreateQueue({.depth = 2}));
  std::vector<std::byte> read(30'000);
  EXPECT_TRUE(io::ReadFully(*queue, *file, 0, read).has_value());
  EXPECT_EQ(opens() + bytes(), 0);
}

TEST_F(ThrottledBackendTest, CallsThatWaitEndWhenTheDaemonStops) {
  std::unique_ptr<io::File> file;
  Run([&] { file = Take(root_->Open("a/data.bin", io::OpenMode::kRead)); });
  const auto queue = Take(backend_.CreateQueue({.depth = 2}));
  std::vector<std::byte> read(30'000);
  std::jthread stopper([&] {
    while (throttle_.WaitingThreads(0).empty()) std::this_thread::yield();
    throttle_.Stop();
  });
  // Reads what was saved up, and then waits.
  Status status;
  while (status.has_value()) status = io::ReadFully(*queue, *file, 0, read);
  EXPECT_EQ(CodeOf(status), ErrorCode::kCancelled);
  EXPECT_EQ(queue->in_flight(), 0U);
  EXPECT_EQ(CodeOf(root_->Stat("a/data.bin")), ErrorCode::kCancelled);
}

}  // namespace forebay::stage::gfs_throttle_test
