// Whatever demands, late homes and dropped copies come in between, a pass claims each extent that
// has a home once, and then it has ended.
#include "server/stage/extent_table.h"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::stage {
namespace {

using plan::HomeTier;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using Outcome = ExtentTable::Outcome;

constexpr auto kNone = HomeTier::kNone, kRam = HomeTier::kRam, kSsd = HomeTier::kSsd;

TEST(ExtentTableTest, APassSkipsWhatIsResidentOrHasNoHomeAndBringsCopiesLast) {
  ExtentTable table;
  table.SetRemote({true, false, false, true, false});
  table.Fill({false, true, false, false, false}, {kRam, kRam, kSsd, kNone, kNone});
  EXPECT_THAT(table.WithoutHome(), ElementsAre(ExtentId(4))) << "3 is kept by another node";
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(2)));
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(0)));
  EXPECT_EQ(table.ClaimNext(), std::nullopt);
  EXPECT_FALSE(table.HasPassEnded()) << "two loads are under way";
  table.EndLoad(ExtentId(0), Outcome::kResident);
  table.EndLoad(ExtentId(2), Outcome::kFailed);
  EXPECT_TRUE(table.HasPassEnded());
}

TEST(ExtentTableTest, WhatFailedOrIsAbsentIsClaimedByTheNextPass) {
  ExtentTable table;
  table.SetRemote({true, false, false, false});
  table.Fill({false, false, false, false}, {kRam, kRam, kRam, kRam});
  for (const Outcome outcome : {Outcome::kFailed, Outcome::kAbsent, Outcome::kResident}) {
    table.EndLoad(*table.ClaimNext(), outcome);  // of 1, 2 and 3
  }
  table.EndLoad(*table.ClaimNext(), Outcome::kFailed);  // of the copy
  ASSERT_TRUE(table.HasPassEnded());
  EXPECT_FALSE(table.BeginAgain({true, true, true, true}));
  ASSERT_TRUE(table.HasPassEnded());
  ASSERT_TRUE(table.BeginAgain({false, false, false, true}));
  EXPECT_FALSE(table.HasPassEnded());
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(1)));
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(2)));
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(0))) << "copies come last again";
  EXPECT_EQ(table.ClaimNext(), std::nullopt);
}

TEST(ExtentTableTest, AnExtentWithAHomeStaysLocalAndACopyDoesNot) {
  ExtentTable table;
  table.SetRemote({true, false, false});
  table.Fill({false, false, false}, {kRam, kRam, kNone});
  table.SetRemote({true, true, true});
  EXPECT_TRUE(table.IsCopy(ExtentId(0)));
  EXPECT_FALSE(table.IsRemote(ExtentId(1)));
  EXPECT_TRUE(table.IsRemote(ExtentId(2)));
  table.MakeLocal(ExtentId(2));
  EXPECT_THAT(table.WithoutHome(), ElementsAre(ExtentId(2)));
}

TEST(ExtentTableTest, ACopyIsUnwantedOnceNoStreamWantsIt) {
  ExtentTable table;
  table.SetRemote({true, true, false});
  table.Fill({false, true, true}, {kRam, kSsd, kRam});
  EXPECT_THAT(table.UnwantedCopies(), ElementsAre(ExtentId(0), ExtentId(1)));
  const std::vector<ExtentId> both = {ExtentId(0), ExtentId(1)}, one = {ExtentId(1)};
  table.WantCopies(both);
  table.WantCopies(one);
  EXPECT_THAT(table.UnwantedCopies(), IsEmpty());
  table.UnwantCopies(both);
  EXPECT_THAT(table.UnwantedCopies(), ElementsAre(ExtentId(0)));
  ASSERT_TRUE(table.Claim(ExtentId(0), false));
  EXPECT_EQ(table.DropCopy(ExtentId(0)), std::nullopt) << "it is being loaded";
  EXPECT_THAT(table.DropCopy(ExtentId(1)), Optional(kSsd));
  EXPECT_FALSE(table.HasHome(ExtentId(1)));
}

// Everything that may come in between, in any order: 400 runs of 60 random steps each.
TEST(ExtentTableTest, WhateverComesInBetweenAPassClaimsAllThatHasAHome) {
  constexpr std::uint32_t kExtents = 12;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&random](std::uint32_t bound) {
      return static_cast<std::uint32_t>(random() % bound);
    };
    ExtentTable table;
    std::vector<bool> remote(kExtents), resident(kExtents);
    std::vector<HomeTier> homes(kExtents);
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      remote[i] = below(3) == 0;
      homes[i] = below(2) == 0 ? kNone : kRam;
      resident[i] = homes[i] != kNone && below(4) == 0;
    }
    table.SetRemote(remote);
    table.Fill(resident, homes);
    std::set<ExtentId> loading;
    // What somebody tried to load in vain: no pass claims it again.
    std::set<ExtentId> failed;
    for (int step = 0; step < 60; ++step) {
      const ExtentId any(below(kExtents));
      switch (below(6)) {
        case 0:
          if (const auto next = table.ClaimNext()) {
            EXPECT_TRUE(table.HasHome(*next));
            EXPECT_TRUE(loading.insert(*next).second) << "claimed twice";
            EXPECT_FALSE(failed.contains(*next));
          }
          break;
        case 1:
          EXPECT_EQ(table.IsLoading(any), loading.contains(any));
          if (table.Claim(any, below(2) == 0)) {
            EXPECT_TRUE(loading.insert(any).second) << "claimed twice";
          }
          failed.erase(any);
          break;
        case 2:
          if (loading.empty()) break;
          {
            const ExtentId done = *loading.begin();
            loading.erase(loading.begin());
            const bool is_failed = below(4) == 0;
            table.EndLoad(done, is_failed ? Outcome::kFailed : Outcome::kResident);
            if (is_failed) failed.insert(done);
          }
          break;
        case 3:
          if (const auto next = table.NextWithoutHome()) {
            EXPECT_FALSE(table.HasHome(*next) || table.IsRemote(*next));
            EXPECT_TRUE(table.GiveHome(*next, kSsd));
          }
          break;
        case 4:
          if (!table.HasHome(any)) static_cast<void>(table.GiveHome(any, kRam));
          break;
        default:
          if (table.IsCopy(any) && table.DropCopy(any)) failed.erase(any);
      }
    }
    while (const auto next = table.ClaimNext()) loading.insert(*next);
    EXPECT_EQ(table.HasPassEnded(), loading.empty());
    for (const ExtentId extent : loading) table.EndLoad(extent, Outcome::kResident);
    EXPECT_TRUE(table.HasPassEnded());
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      const ExtentId extent(i);
      const bool was_loaded = !table.Claim(extent, /*again=*/false);
      EXPECT_TRUE(was_loaded || !table.HasHome(extent) || failed.contains(extent)) << i;
    }
  }
}

}  // namespace
}  // namespace forebay::stage
