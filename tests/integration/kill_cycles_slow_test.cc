#include <cstdio>

#include "tests/integration/kill_cycles.h"

namespace forebay::integration {
namespace {

TEST(KillCyclesSlowTest, TwoHundredKillsLoseNothingPublished) {
  constexpr std::uint64_t kSeed = 20261121;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const DaemonRig rig({.records = 4096, .extent = "512KiB"});
  std::mt19937_64 random(kSeed);
  KillTally tally;
  constexpr int kCycles = 200;
  for (int i = 0; i < kCycles && !::testing::Test::HasFatalFailure(); ++i) {
    SCOPED_TRACE("cycle " + std::to_string(i));
    KillCycle(rig, 32, random, tally);
  }
  std::printf("%d kills, %d while staging, %llu segments found again\n", tally.kills,
              tally.in_flight, static_cast<unsigned long long>(tally.segments_found));
  EXPECT_EQ(tally.kills, kCycles);
  EXPECT_GE(tally.in_flight, 40) << "the kills came too late";
  EXPECT_GT(tally.segments_found, 0U) << "nothing was ever found again";
}

}  // namespace
}  // namespace forebay::integration
