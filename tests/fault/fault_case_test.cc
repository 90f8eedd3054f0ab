// The matrix itself: what it contains, what it leaves out, and that names lead back to cases.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fault/expectation.h"
#include "tests/fault/fault_case.h"

namespace forebay::fault::fault_case_test {

using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kSeed = 5;

TEST(FaultCaseTest, NamesLeadBackToTheirCasesAndAreUnique) {
  std::set<std::string> names;
  for (const FaultCase& fault_case : WholeMatrix(kSeed)) {
    const std::string name = fault_case.Name();
    EXPECT_TRUE(names.insert(name).second) << name;
    const auto parsed = ParseCase(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->Name(), name);
  }
  const auto pair = ParseCase("hang+ssd-gone/eviction/block/ram-ssd/tar/inline/77");
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->second_fault, FaultKind::kSsdGone);
  EXPECT_EQ(pair->seed, 77U);
}

TEST(FaultCaseTest, RefusesNamesOfNoCase) {
  for (const char* name :
       {"", "hang", "hang/eviction/block/ram-ssd/tar/inline",
        "melt/eviction/block/ram/tar/inline/1", "hang/eviction/block/ram/tar/inline/x",
        "hang/eviction/block/ram/tar/inline/1/", "hang+hang+hang/eviction/block/ram/tar/inline/1",
        "hang/block/eviction/ram/tar/inline/1"}) {
    EXPECT_FALSE(ParseCase(name)) << name;
  }
}

TEST(FaultCaseTest, WhatIsExcludedHasAReason) {
  const auto why = [](const char* name) { return std::string(WhyExcluded(*ParseCase(name))); };
  EXPECT_THAT(why("hang/streaming/global/small-ram/records/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("ssd-flips/streaming/block/ram/records/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("ssd-gone/streaming/block/lost-ssd/records/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("ssd-flips/cataloguing/block/ram-ssd/tar/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("flipped-read/staging/block/ram/records/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("flipped-read/streaming/block/ram-ssd/records/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("short-reads/cataloguing/block/ram/records/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("remount+hang/staging/block/ram/records/views/1"), Not(IsEmpty()));
  EXPECT_THAT(why("flipped-read/eviction/global/ram/records/views/1"), IsEmpty());
  EXPECT_THAT(why("remount+ssd-gone/staging/block/ram-ssd/records/views/1"), IsEmpty());
}

TEST(FaultCaseTest, EveryFaultMeetsEveryPhaseOrderAndTiersThatItCan) {
  std::map<FaultKind, std::set<Phase>> phases;
  std::map<FaultKind, std::set<Tiers>> tiers;
  std::map<FaultKind, std::set<OrderMode>> orders;
  for (const FaultCase& fault_case : WholeMatrix(kSeed)) {
    EXPECT_THAT(std::string(WhyExcluded(fault_case)), IsEmpty());
    phases[fault_case.fault].insert(fault_case.phase);
    tiers[fault_case.fault].insert(fault_case.tiers);
    orders[fault_case.fault].insert(fault_case.order);
  }
  ASSERT_EQ(phases.size(), 17U) << "every fault";
  for (const FaultKind outage : {FaultKind::kOutage300Ms, FaultKind::kOutage1S,
                                 FaultKind::kOutage10S, FaultKind::kOutage60S}) {
    EXPECT_EQ(phases[outage].size(), 4U);
    EXPECT_EQ(tiers[outage].size(), 4U);
  }
  for (const auto& [fault, seen] : orders) EXPECT_EQ(seen.size(), 2U) << static_cast<int>(fault);
  EXPECT_EQ(phases[FaultKind::kFlippedRead].size(), 2U);
  EXPECT_EQ(phases[FaultKind::kSsdGone].size(), 4U);
  EXPECT_EQ(tiers[FaultKind::kSsdGone], std::set<Tiers>{Tiers::kRamAndSsd});
}

TEST(FaultCaseTest, TheQuickSelectionMeetsEveryPairAndHasNoLongOutage) {
  const auto pairs_of = [](const std::vector<FaultCase>& cases) {
    std::set<std::pair<int, int>> pairs;
    for (const FaultCase& fault_case : cases) {
      if (fault_case.fault == FaultKind::kOutage10S) continue;
      if (fault_case.fault == FaultKind::kOutage60S) continue;
      const int fault = static_cast<int>(fault_case.fault) * 100;
      pairs.emplace(fault, static_cast<int>(fault_case.phase));
      pairs.emplace(fault + 10, static_cast<int>(fault_case.tiers));
      pairs.emplace(fault + 20, static_cast<int>(fault_case.order));
    }
    return pairs;
  };
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto selected = QuickSelection(seed);
    EXPECT_EQ(pairs_of(selected), pairs_of(WholeMatrix(seed))) << seed;
    EXPECT_LT(selected.size(), 70U);
    EXPECT_TRUE(std::ranges::none_of(selected, [](const FaultCase& fault_case) {
      return fault_case.fault == FaultKind::kOutage10S ||
             fault_case.fault == FaultKind::kOutage60S;
    }));
  }
}

TEST(FaultCaseTest, ASeedRepeatsItsRandomCases) {
  std::uint64_t first_state = 9, second_state = 9;
  std::set<std::string> names;
  bool has_pair = false;
  for (int i = 0; i < 200; ++i) {
    const FaultCase fault_case = RandomCase(first_state);
    EXPECT_EQ(fault_case.Name(), RandomCase(second_state).Name());
    EXPECT_THAT(std::string(WhyExcluded(fault_case)), IsEmpty()) << fault_case.Name();
    names.insert(fault_case.Name());
    has_pair = has_pair || fault_case.second_fault;
  }
  EXPECT_EQ(names.size(), 200U);
  EXPECT_TRUE(has_pair);
}

}  // namespace forebay::fault::fault_case_test
