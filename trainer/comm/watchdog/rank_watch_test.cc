// Judgements about ranks, with times that the test sets: who is lost, who holds the others up, and
// what the message names.
#include "trainer/comm/watchdog/rank_watch.h"

#include <gtest/gtest.h>

namespace forebay::train {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

RankWatch MakeWatch() {
  return RankWatch({.limit_ns = 4 * kSecond, .report_ns = 60 * kSecond});
}

Progress::Note At(std::uint64_t changes, const char* text, bool waits = false) {
  return {.changes = changes, .text = text, .waits = waits};
}

TEST(RankWatchTest, ARankThatBeatsIsNotLostWhateverItDoes) {
  RankWatch watch = MakeWatch();
  for (std::uint64_t second = 0; second < 1000; second += 3) {
    watch.Heard(1, "h", At(7, "step 7, F micro-batch 3 of stage 1"), second * kSecond);
    EXPECT_FALSE(watch.Silent(second * kSecond + 3 * kSecond).has_value());
  }
}

TEST(RankWatchTest, SilenceNamesRankHostAndInstruction) {
  RankWatch watch = MakeWatch();
  watch.Heard(0, "g", At(1, "step 7, RECV"), 12 * kSecond);
  watch.Heard(1, "h", At(7, "step 7, F micro-batch 3 of stage 1"), 10 * kSecond);
  EXPECT_FALSE(watch.Silent(14 * kSecond - 1).has_value());
  EXPECT_EQ(watch.Silent(14 * kSecond),
            "rank 1 (host h) has not been heard of for 4.0 s; its last known instruction: step 7, "
            "F micro-batch 3 of stage 1");
}

TEST(RankWatchTest, ARankIsWatchedFromItsFirstBeatUntilItLeaves) {
  RankWatch watch = MakeWatch();
  EXPECT_FALSE(watch.Silent(1000 * kSecond).has_value());
  EXPECT_FALSE(watch.Watches(1));
  watch.Heard(1, "h", At(0, ""), 1000 * kSecond);
  EXPECT_TRUE(watch.Watches(1));
  EXPECT_EQ(watch.Gone(1), "rank 1 (host h) has gone; its last known instruction: none yet");
  watch.Left(1);
  EXPECT_FALSE(watch.Watches(1));
  EXPECT_FALSE(watch.Silent(2000 * kSecond).has_value());
}

TEST(RankWatchTest, WhoWasSuspendedItselfJudgesNobody) {
  RankWatch watch = MakeWatch();
  watch.Heard(1, "h", At(1, "x"), 0);
  EXPECT_TRUE(watch.Silent(500 * kSecond).has_value());
  watch.Forgive(500 * kSecond);
  EXPECT_FALSE(watch.Silent(500 * kSecond).has_value());
  EXPECT_TRUE(watch.Stuck(500 * kSecond).empty());
  EXPECT_TRUE(watch.Silent(504 * kSecond).has_value());
}

TEST(RankWatchTest, NamesTheOneWhoKeepsTheOthersWaiting) {
  RankWatch watch = MakeWatch();
  const auto beat = [&watch](std::uint64_t now_ns) {
    watch.Heard(0, "g", At(3, "step 7, RECV", true), now_ns);
    watch.Heard(1, "h", At(5, "step 7, F micro-batch 3 of stage 1"), now_ns);
    watch.Heard(2, "h", At(4, "step 7, END", true), now_ns);
  };
  beat(0);
  beat(59 * kSecond);
  EXPECT_TRUE(watch.Stuck(59 * kSecond).empty());
  beat(62 * kSecond);
  const std::vector<std::string> lines = watch.Stuck(62 * kSecond);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines.front(),
            "rank 1 (host h) has been at one instruction for 62 s: step 7, F micro-batch 3 of "
            "stage 1");
  // Again only after the report time.
  beat(121 * kSecond);
  EXPECT_TRUE(watch.Stuck(121 * kSecond).empty());
  EXPECT_EQ(watch.Stuck(122 * kSecond).size(), 1U);
}

TEST(RankWatchTest, ProgressIsNoReport) {
  RankWatch watch = MakeWatch();
  watch.Heard(0, "g", At(1, "F"), 0);
  watch.Heard(0, "g", At(2, "F"), 30 * kSecond);
  watch.Heard(0, "g", At(2, "F"), 61 * kSecond);
  EXPECT_TRUE(watch.Stuck(61 * kSecond).empty());
  watch.Heard(0, "g", At(2, "F"), 90 * kSecond);
  EXPECT_EQ(watch.Stuck(90 * kSecond).size(), 1U);
}

TEST(RankWatchTest, WhereAllWaitForEachOtherAllAreNamed) {
  RankWatch watch = MakeWatch();
  watch.Heard(0, "g", At(1, "step 7, RECV a", true), 0);
  watch.Heard(1, "h", At(1, "step 7, RECV b", true), 0);
  watch.Heard(0, "g", At(1, "step 7, RECV a", true), 60 * kSecond);
  watch.Heard(1, "h", At(1, "step 7, RECV b", true), 60 * kSecond);
  const std::vector<std::string> lines = watch.Stuck(60 * kSecond);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[1].find("RECV b (waiting for other ranks)"), std::string::npos) << lines[1];
}

TEST(RankWatchTest, OneWhoWaitsIsNotNamedWhileAnotherGoesOn) {
  RankWatch watch = MakeWatch();
  watch.Heard(0, "g", At(1, "step 7, RECV", true), 0);
  watch.Heard(0, "g", At(1, "step 7, RECV", true), 61 * kSecond);
  watch.Heard(1, "h", At(1, "step 7, F", false), 59 * kSecond);
  EXPECT_TRUE(watch.Stuck(61 * kSecond).empty());
}

}  // namespace
}  // namespace forebay::train
