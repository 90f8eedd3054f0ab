// How many restarts there are, and how the pauses before them grow.
#include "client/cli/launch/restart_budget.h"

#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// The pauses before `count` restarts, each of which runs for `runs_for` until the next one.
std::vector<std::int64_t> Pauses(RestartBudget& budget, int count, milliseconds runs_for) {
  std::vector<std::int64_t> pauses;
  RestartBudget::Time now(std::chrono::hours(1));
  for (int i = 0; i < count; ++i) {
    const auto restart = budget.Take(now);
    if (!restart) break;
    EXPECT_EQ(restart->number, pauses.size() + 1);
    pauses.push_back(restart->pause.count());
    now += restart->pause + runs_for;
  }
  return pauses;
}

TEST(RestartBudgetTest, ThereAreAsManyRestartsAsTheLimitSays) {
  RestartBudget none(0);
  EXPECT_FALSE(none.Take(RestartBudget::Time()).has_value());
  RestartBudget two(2);
  EXPECT_EQ(Pauses(two, 5, milliseconds(0)).size(), 2U);
  EXPECT_FALSE(two.Take(RestartBudget::Time(std::chrono::hours(2))).has_value())
      << "time gives none back";
}

TEST(RestartBudgetTest, PausesGrowWhileRestartsFollowEachOther) {
  RestartBudget budget(12);
  EXPECT_THAT(Pauses(budget, 12, milliseconds(59'999)),
              ElementsAre(100, 200, 400, 800, 1'600, 3'200, 6'400, 12'800, 25'600, 30'000, 30'000,
                          30'000));
}

TEST(RestartBudgetTest, AMinuteWithoutARestartMakesThePauseShortAgain) {
  RestartBudget budget(3);
  EXPECT_THAT(Pauses(budget, 3, milliseconds(60'000)), ElementsAre(100, 100, 100));
}

}  // namespace
}  // namespace forebay::cli
