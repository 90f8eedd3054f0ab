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

// There may always be an extent that is being read ahead.
TEST(ExtentTableTest, APassDoesNotWaitForWhatIsReadAheadAndHasNoHome) {
  ExtentTable table;
  table.Fill({false, false, false}, {kRam, kNone, kNone});
  ASSERT_TRUE(table.Claim(ExtentId(1), /*ahead=*/true));
  EXPECT_FALSE(table.Claim(ExtentId(1))) << "it is loaded once";
  EXPECT_TRUE(table.IsLoading(ExtentId(1)));
  ASSERT_TRUE(table.Claim(ExtentId(0), /*ahead=*/true));
  EXPECT_EQ(table.ClaimNext(), std::nullopt);
  EXPECT_FALSE(table.HasPassEnded()) << "0 has a home";
  table.EndLoad(ExtentId(0), Outcome::kResident);
  EXPECT_TRUE(table.HasPassEnded());
  ASSERT_TRUE(table.Claim(ExtentId(2)));
  EXPECT_FALSE(table.HasPassEnded()) << "a reader demands it";
  table.EndLoad(ExtentId(1), Outcome::kAbsent);
  table.EndLoad(ExtentId(2), Outcome::kResident);
  EXPECT_TRUE(table.HasPassEnded());
  EXPECT_TRUE(table.Claim(ExtentId(1)));
}

TEST(ExtentTableTest, APassComesBackToWhatGotAHomeBehindIt) {
  ExtentTable table;
  table.SetRemote({false, false, false, true});
  table.Fill({false, false, false, false}, {kNone, kRam, kNone, kNone});
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(1)));
  table.SetHome(ExtentId(0), kRam);
  table.SetHome(ExtentId(2), kRam);  // the pass will come to it
  table.SetHome(ExtentId(3), kSsd);  // a copy
  table.SetHome(ExtentId(1), kSsd);  // it is being loaded
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(2)));
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(0)));
  EXPECT_THAT(table.ClaimNext(), Optional(ExtentId(3)));
  EXPECT_EQ(table.ClaimNext(), std::nullopt);
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
  ASSERT_TRUE(table.Claim(ExtentId(0)));
  EXPECT_EQ(table.DropCopy(ExtentId(0)), std::nullopt) << "it is being loaded";
  EXPECT_THAT(table.DropCopy(ExtentId(1)), Optional(kSsd));
  EXPECT_EQ(table.DropCopy(ExtentId(1)), std::nullopt) << "it is no copy any more";
  EXPECT_FALSE(table.HasHome(ExtentId(1)));
}

// A table with random contents, on which random steps are done, and what is known of its loads.
class RandomTable {
 public:
  static constexpr std::uint32_t kExtents = 12;

  explicit RandomTable(std::uint32_t seed) : random_(seed) {
    std::vector<bool> remote(kExtents), resident(kExtents);
    std::vector<HomeTier> homes(kExtents);
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      remote[i] = Below(3) == 0;
      homes[i] = Below(2) == 0 ? kNone : kRam;
      resident[i] = homes[i] != kNone && Below(4) == 0;
      if (resident[i]) resident_.insert(ExtentId(i));
    }
    table_.SetRemote(remote);
    table_.Fill(resident, homes);
  }

  void Step() {
    const ExtentId any(Below(kExtents));
    switch (Below(7)) {
      case 0: return ClaimNext();
      case 1: return Demand(any);
      case 2: return EndALoad();
      case 3: return GiveNextAHome();
      case 4:
        if (!table_.HasHome(any)) static_cast<void>(table_.GiveHome(any, kRam));
        return;
      case 5: return table_.SetHome(any, kRam);
      default:
        if (table_.IsCopy(any) && table_.DropCopy(any)) {
          failed_.erase(any);
          resident_.erase(any);
        }
    }
  }

  // Claims and loads the rest of the pass, and expects that all extents with a home were loaded.
  void ExpectThePassEnds() {
    while (const auto next = table_.ClaimNext()) loading_.insert(*next);
    EXPECT_EQ(table_.HasPassEnded(), loading_.empty());
    for (const ExtentId extent : loading_) table_.EndLoad(extent, Outcome::kResident);
    resident_.insert(loading_.begin(), loading_.end());
    EXPECT_TRUE(table_.HasPassEnded());
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      const ExtentId extent(i);
      EXPECT_TRUE(resident_.contains(extent) || !table_.HasHome(extent) ||
                  failed_.contains(extent))
          << i;
    }
  }

 private:
  std::uint32_t Below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  void ClaimNext() {
    const auto next = table_.ClaimNext();
    if (!next) return;
    EXPECT_TRUE(table_.HasHome(*next));
    EXPECT_TRUE(loading_.insert(*next).second) << "claimed twice";
    EXPECT_FALSE(failed_.contains(*next));
  }
  void Demand(ExtentId extent) {
    EXPECT_EQ(table_.IsLoading(extent), loading_.contains(extent));
    const bool is_claimed = table_.Claim(extent);
    failed_.erase(extent);
    resident_.erase(extent);
    const bool is_new = !is_claimed || loading_.insert(extent).second;
    EXPECT_TRUE(is_new) << "claimed twice";
  }
  void EndALoad() {
    if (loading_.empty()) return;
    const ExtentId extent = *loading_.begin();
    loading_.erase(loading_.begin());
    const bool has_failed = Below(4) == 0;
    table_.EndLoad(extent, has_failed ? Outcome::kFailed : Outcome::kResident);
    (has_failed ? failed_ : resident_).insert(extent);
  }
  void GiveNextAHome() {
    const auto next = table_.NextWithoutHome();
    if (!next) return;
    EXPECT_FALSE(table_.HasHome(*next) || table_.IsRemote(*next));
    EXPECT_TRUE(table_.GiveHome(*next, kSsd));
  }

  std::mt19937 random_;
  ExtentTable table_;
  std::set<ExtentId> loading_;
  std::set<ExtentId> failed_;  // no pass claims them again
  std::set<ExtentId> resident_;
};

TEST(ExtentTableTest, WhateverComesInBetweenAPassClaimsAllThatHasAHome) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomTable table(seed);
    for (int step = 0; step < 60; ++step) table.Step();
    table.ExpectThePassEnds();
  }
}

}  // namespace
}  // namespace forebay::stage
