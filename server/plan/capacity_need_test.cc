// The capacities that messages advise are enough, and little more than that.
#include "server/plan/capacity_need.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::plan::capacity_need_test {

using limits::kMiB;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kPage = 4096;

Footprint Of(std::uint64_t image_bytes) {
  return {.ram_bytes = FootprintBytes(image_bytes),
          .ssd_bytes = FootprintBytes(image_bytes) + 2 * kPage};
}

TierPlan Tiers(std::uint64_t ram_mib, std::uint64_t ssd_mib) {
  return {.ram = {.capacity_bytes = ram_mib * kMiB,
                  .largest_extent_bytes = 4 * kMiB,
                  .has_passing_extents = ssd_mib > 0},
          .ssd = {.capacity_bytes = ssd_mib * kMiB, .home_permille = 940}};
}

std::uint64_t CountWithoutHome(const TierPlan& tiers, const std::vector<Footprint>& extents) {
  return FillSpace(tiers.HomeSpace(), extents).extents_without_home.size();
}

TEST(SsdPlanTest, CapacityForIsTheSmallestThatHolds) {
  for (const std::uint64_t permille : {940U, 1000U, 7U}) {
    for (const std::uint64_t bytes : {1ULL, 156ULL << 20, 777'777'777ULL, 300ULL << 30}) {
      SsdPlan plan{.home_permille = permille};
      plan.capacity_bytes = plan.CapacityFor(bytes);
      EXPECT_GE(plan.HomeBytes(), bytes);
      plan.capacity_bytes -= kMiB;
      EXPECT_LT(plan.HomeBytes(), bytes) << permille << " " << bytes;
    }
  }
}

TEST(FillSpaceTest, CountsWhatFitsNowhereOnBothTiers) {
  const std::vector<Footprint> extents = {Of(kPage), Of(kPage), Of(kPage), Of(1)};
  const Fill fill = FillSpace({.ram_bytes = kPage, .ssd_bytes = 3 * kPage + 5}, extents);
  EXPECT_THAT(fill.extents_without_home, ElementsAre(2U, 3U));
  EXPECT_EQ(fill.missing.ram_bytes, 2 * kPage);
  EXPECT_EQ(fill.missing.ssd_bytes, 6 * kPage);
  EXPECT_EQ(fill.left.ram_bytes, 0U);
  EXPECT_EQ(fill.left.ssd_bytes, 5U);
}

// Their bytes are one page less than the space that they take.
TEST(CapacityNeedTest, EachCapacityAloneIsEnoughAndAMebibyteLessIsNot) {
  const std::vector<Footprint> extents(39, Of(4 * kMiB - kPage + 1));
  for (const std::uint64_t ram_mib : {8U, 96U, 130U}) {
    for (const std::uint64_t ssd_mib : {0U, 20U}) {
      const TierPlan tiers = Tiers(ram_mib, ssd_mib);
      ASSERT_GT(CountWithoutHome(tiers, extents), 0U);
      const CapacityNeed need = NeedOf(tiers, tiers.HomeSpace(), extents);
      TierPlan more_ram = tiers;
      more_ram.ram.capacity_bytes = need.ram_bytes;
      EXPECT_EQ(CountWithoutHome(more_ram, extents), 0U) << ram_mib << " " << ssd_mib;
      more_ram.ram.capacity_bytes -= kMiB;
      EXPECT_GT(CountWithoutHome(more_ram, extents), 0U) << ram_mib << " " << ssd_mib;

      TierPlan more_ssd = tiers;
      more_ssd.ram.has_passing_extents = true;
      more_ssd.ssd.capacity_bytes = need.ssd_bytes;
      EXPECT_EQ(CountWithoutHome(more_ssd, extents), 0U) << ram_mib << " " << ssd_mib;
      more_ssd.ssd.capacity_bytes -= kMiB;
      EXPECT_GT(CountWithoutHome(more_ssd, extents), 0U) << ram_mib << " " << ssd_mib;
    }
  }
}

TEST(CapacityNeedTest, IsEnoughForExtentsOfEverySize) {
  std::uint64_t state = 27;
  const auto draw = [&state](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  int short_ones = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Footprint> extents(1 + draw(30));
    for (Footprint& extent : extents) extent = Of(1 + draw(4 * kMiB));
    const TierPlan tiers = Tiers(4 + draw(40), draw(3) * draw(12));
    if (CountWithoutHome(tiers, extents) > 0) ++short_ones;
    const CapacityNeed need = NeedOf(tiers, tiers.HomeSpace(), extents);
    TierPlan enough = tiers;
    enough.ram.capacity_bytes = need.ram_bytes;
    ASSERT_EQ(CountWithoutHome(enough, extents), 0U) << "round " << round;
    enough = tiers;
    enough.ram.has_passing_extents = true;
    enough.ssd.capacity_bytes = need.ssd_bytes;
    ASSERT_EQ(CountWithoutHome(enough, extents), 0U) << "round " << round;
  }
  EXPECT_GT(short_ones, 500);
}

// If RAM grew by the third extent, it would take the first two, and the third would fit nowhere.
TEST(CapacityNeedTest, WhereMoreRamWouldOnlyMixSizesOtherwiseAllOfThemGoThere) {
  const std::vector<Footprint> extents = {Of(60 * kMiB), Of(60 * kMiB), Of(120 * kMiB)};
  TierPlan tiers{.ram = {.capacity_bytes = 64 * kMiB}, .ssd = {.capacity_bytes = 64 * kMiB}};
  ASSERT_EQ(CountWithoutHome(tiers, extents), 1U);
  const CapacityNeed need = NeedOf(tiers, tiers.HomeSpace(), extents);
  EXPECT_GT(need.ram_bytes, 240 * kMiB);
  tiers.ram.capacity_bytes = tiers.ram.CapacityFor(tiers.ram.HomeBytes() + 120 * kMiB);
  EXPECT_EQ(CountWithoutHome(tiers, extents), 1U);
  tiers.ram.capacity_bytes = need.ram_bytes;
  EXPECT_EQ(CountWithoutHome(tiers, extents), 0U);
}

TEST(CapacityAdviceTest, SaysWhatIsConfiguredNow) {
  EXPECT_EQ(CapacityAdvice(Tiers(96, 20), {.ram_bytes = 160 * kMiB, .ssd_bytes = 70 * kMiB}),
            "set tier.ram.capacity to 160 MiB (now 96 MiB), or tier.ssd.capacity to 70 MiB "
            "(now 20 MiB)");
  EXPECT_THAT(CapacityAdvice(Tiers(96, 0), {.ram_bytes = 160 * kMiB, .ssd_bytes = 70 * kMiB}),
              HasSubstr("or tier.ssd.capacity to 70 MiB (there is none now: set tier.ssd.directory "
                        "too)"));
}

TEST(CapacityAdviceTest, AnSsdThatRefusesIsNotAskedForMore) {
  const std::string advice = RefusedSsdAdvice(Tiers(72, 1024), 112 * kMiB);
  EXPECT_THAT(advice, HasSubstr("the SSD takes less than tier.ssd.capacity (1024 MiB)"));
  EXPECT_THAT(advice, HasSubstr("free space there and run 'forebay stage' again"));
  EXPECT_THAT(advice, HasSubstr("set tier.ram.capacity to 112 MiB (now 72 MiB)"));
}

}  // namespace forebay::plan::capacity_need_test
