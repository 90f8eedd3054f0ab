// A daemon that stops says what it waits for, and which step took longest.
#include "server/daemon/stop_steps.h"

#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::daemon::stop_steps_test {

constexpr std::int64_t kSecondNs = 1'000'000'000;

TEST(StopSteps, NameWhatIsWaitedFor) {
  io::ManualClock clock;
  StopSteps steps(clock);
  EXPECT_STREQ(steps.now(), "");
  steps.Begin("readers");
  EXPECT_STREQ(steps.now(), "readers");
  steps.Begin("threads");
  EXPECT_STREQ(steps.now(), "threads");
}

TEST(StopSteps, TheLongestIsNamedIfItTookASecond) {
  io::ManualClock clock(77 * kSecondNs);
  StopSteps steps(clock);
  steps.Begin("readers");
  clock.AdvanceNs(kSecondNs - 1);
  steps.Begin("threads");
  EXPECT_EQ(steps.Longest(), "") << "the time before the first step counts for none";
  clock.AdvanceNs(3 * kSecondNs);
  steps.Begin("answers");
  clock.AdvanceNs(2 * kSecondNs);
  steps.Begin("memory");
  EXPECT_EQ(steps.Longest(), " (the longest wait, 3.0 s, for threads)");
}

}  // namespace forebay::daemon::stop_steps_test
