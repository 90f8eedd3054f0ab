// The simulations of what nodes do beside moving samples, on jobs that are small.
#include "bench/nodes/scale_service.h"

#include <gtest/gtest.h>

namespace forebay::bench {
namespace {

TEST(ScaleServiceTest, ANodeProbesOneOtherEachSecondAndAllKnowOfALostOne) {
  const Probing probing = ProbingOf(32, 2, 1);
  EXPECT_NEAR(probing.messages, 2, 0.2) << "a probe, and on average an answer";
  EXPECT_GT(probing.bytes, probing.messages);
  EXPECT_GT(probing.known_s, 5) << "a suspected node has 5 s to refute that";
  EXPECT_LT(probing.known_s, 60);
  EXPECT_EQ(probing.wrong_verdicts, 0U);
}

TEST(ScaleServiceTest, AQuarterOfTheNodesUsesTheCapOfTheJobAndNoMore) {
  const Politeness politeness = PolitenessOf(64, 3, 1);
  EXPECT_LE(politeness.most_of_cap, 1 + 1e-9);
  EXPECT_GT(politeness.used_of_cap, 0.8) << "the others lend them what they do not use";
  EXPECT_LE(politeness.used_of_cap, 1 + 1e-9);
  EXPECT_GT(politeness.asks, 0);
  EXPECT_LT(politeness.asks, 16);
  EXPECT_GT(politeness.after_of_cap, 0.7);
  EXPECT_LE(politeness.after_of_cap, politeness.most_of_cap);
}

TEST(ScaleServiceTest, TheSameSeedGivesTheSameFigures) {
  const Politeness one = PolitenessOf(16, 1, 7);
  const Politeness two = PolitenessOf(16, 1, 7);
  EXPECT_EQ(one.asks, two.asks);
  EXPECT_EQ(one.used_of_cap, two.used_of_cap);
  EXPECT_EQ(ProbingOf(16, 1, 7).known_s, ProbingOf(16, 1, 7).known_s);
}

}  // namespace
}  // namespace forebay::bench
