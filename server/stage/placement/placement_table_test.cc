// An extent with a home on a tier has space reserved there, exact to the byte, and is there once
// its data set is staged.
#include "server/stage/placement/placement_table.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage {
namespace {

using io::testing::Pattern;

constexpr std::uint64_t kPage = 4096;
constexpr tier::ExtentKey kKey{.dataset = 1, .extent = ExtentId(0), .identity = 7};

class PlacementTableTest : public ::testing::Test {
 protected:
  io::ManualClock clock_{1'000'000'000};
};

TEST_F(PlacementTableTest, AnExtentKeepsTheRoomItHasWhateverItIsExpectedToTakeNow) {
  PlacementTable placements({.ram_bytes = 8 * kPage, .ssd_bytes = 0}, clock_);
  EXPECT_EQ(placements.Reserve(kKey, std::nullopt, kPage, 1).home, plan::HomeTier::kRam);
  const PlacementTable::Reservation again = placements.Reserve(kKey, std::nullopt, 4 * kPage, 1);
  EXPECT_EQ(again.home, plan::HomeTier::kRam);
  EXPECT_EQ(again.bytes, kPage) << "or as much would be freed as was never taken";
  EXPECT_EQ(placements.left().ram_bytes, 7 * kPage);
}

TEST_F(PlacementTableTest, AGuestInRamTakesRoomLikeOthersOrHasNoHome) {
  PlacementTable placements({.ram_bytes = kPage, .ssd_bytes = 0}, clock_);
  EXPECT_EQ(placements.Reserve(kKey, tier::TierKind::kRam, kPage, 1).home, plan::HomeTier::kRam);
  EXPECT_EQ(placements.left().ram_bytes, 0U);
  tier::ExtentKey other = kKey;
  other.extent = ExtentId(1);
  EXPECT_EQ(placements.Reserve(other, tier::TierKind::kRam, kPage, 1).home, plan::HomeTier::kNone);
}

TEST_F(PlacementTableTest, OnlyWhatLayOnTheSsdFromTheStartHasRoomThere) {
  tier::ExtentKey spilled = kKey;
  spilled.extent = ExtentId(1);
  PlacementTable placements({.ram_bytes = 0, .ssd_bytes = 4 * kPage}, clock_,
                  std::vector<tier::SegmentStore::Stored>{{kKey, 3 * kPage}});
  EXPECT_EQ(placements.Reserve(kKey, tier::TierKind::kSsd, kPage, 1).home, plan::HomeTier::kSsd);
  EXPECT_EQ(placements.left().ssd_bytes, 4 * kPage);
  EXPECT_EQ(placements.Reserve(spilled, tier::TierKind::kSsd, kPage, 1).home, plan::HomeTier::kSsd);
  EXPECT_EQ(placements.left().ssd_bytes, kPage);
}

TEST_F(PlacementTableTest, WhatNoCatalogHasAnyMoreGivesItsRoomBack) {
  tier::ExtentKey stale = kKey, other = kKey;
  stale.identity = 8;
  other.dataset = 2;
  PlacementTable placements({.ram_bytes = 0, .ssd_bytes = 0}, clock_,
                  std::vector<tier::SegmentStore::Stored>{
                      {kKey, 3 * kPage}, {stale, 5 * kPage}, {other, 7 * kPage}});
  EXPECT_EQ(placements.Reserve(kKey, tier::TierKind::kSsd, kPage, 1).home, plan::HomeTier::kSsd);
  EXPECT_EQ(placements.ReleaseOthers(kKey.dataset, std::vector{kKey}), std::vector{stale});
  EXPECT_EQ(placements.left().ssd_bytes, 5 * kPage);
}

// An earlier daemon has left files of a data set that is not configured any more.
TEST_F(PlacementTableTest, WhatIsOfNoDataSetOfThisDaemonGoesWhenRoomIsShort) {
  tier::ExtentKey foreign = kKey;
  foreign.dataset = 2;
  PlacementTable placements({.ram_bytes = kPage, .ssd_bytes = 2 * kPage}, clock_,
                  std::vector<tier::SegmentStore::Stored>{{kKey, 3 * kPage}, {foreign, 7 * kPage}});
  const std::vector<std::uint64_t> ours = {kKey.dataset};
  EXPECT_TRUE(placements.HasForeign(ours));
  EXPECT_TRUE(placements.ReleaseForeign(ours, 3 * kPage).empty()) << "there is room for so much";
  EXPECT_EQ(placements.ReleaseForeign(ours, 4 * kPage), std::vector{foreign});
  EXPECT_EQ(placements.left().ssd_bytes, 9 * kPage);
  EXPECT_FALSE(placements.HasForeign(ours));
  EXPECT_TRUE(placements.ReleaseForeign(ours, 100 * kPage).empty()) << "the rest is ours";
}

TEST_F(PlacementTableTest, WhatHadNoHomeGetsOneWhenRoomComesFree) {
  tier::ExtentKey stale = kKey;
  stale.identity = 8;
  PlacementTable placements({.ram_bytes = kPage, .ssd_bytes = 0}, clock_);
  EXPECT_EQ(placements.Reserve(stale, std::nullopt, kPage, 1).home, plan::HomeTier::kRam);
  EXPECT_EQ(placements.Reserve(kKey, std::nullopt, kPage, 1).home, plan::HomeTier::kNone);
  EXPECT_EQ(placements.ReleaseOthers(kKey.dataset, std::vector{kKey}), std::vector{stale});
  EXPECT_EQ(placements.Reserve(kKey, std::nullopt, kPage, 1).home, plan::HomeTier::kRam);
}

TEST_F(PlacementTableTest, WhatTheSsdRefusesBeforeThereIsACatalogGoesToRamOrHasNoHome) {
  PlacementTable placements({.ram_bytes = kPage, .ssd_bytes = 6 * kPage}, clock_);
  std::vector<tier::ExtentKey> keys;
  for (std::uint32_t i = 0; i < 3; ++i) {
    keys.push_back(kKey);
    keys.back().extent = ExtentId(i);
    const std::uint64_t bytes = i == 0 ? 1 : kPage;  // the first is in RAM
    EXPECT_EQ(placements.Reserve(keys[i], std::nullopt, bytes, 1).home,
              i == 0 ? plan::HomeTier::kRam : plan::HomeTier::kSsd);
  }
  EXPECT_EQ(placements.MoveOffSsd(keys[1]), plan::HomeTier::kNone);
  EXPECT_EQ(placements.left().ssd_bytes, 3 * kPage);
  // The space of the first is free once the catalog has no such extent.
  EXPECT_EQ(placements.ReleaseOthers(kKey.dataset, std::vector{keys[1], keys[2]}),
            std::vector{keys[0]});
  placements.EndCataloguing(kKey.dataset);
  EXPECT_EQ(placements.Reserve(keys[2], std::nullopt, kPage, 1).home, plan::HomeTier::kRam);
  EXPECT_EQ(placements.MoveOffSsd(keys[2]), plan::HomeTier::kRam);
  EXPECT_EQ(placements.left().ram_bytes, 0U) << "what is not on SSD is not moved";
}

TEST_F(PlacementTableTest, ChecksumsTakeRoomOnSsd) {
  PlacementTable placements({.ram_bytes = 0, .ssd_bytes = 8 * kPage}, clock_);
  // The image, 600 checksums in two pages, and a footer.
  const PlacementTable::Reservation planned = placements.Reserve(kKey, std::nullopt, kPage, 600);
  EXPECT_EQ(planned.home, plan::HomeTier::kSsd);
  EXPECT_EQ(planned.footprint.ssd_bytes, 4 * kPage);
  EXPECT_EQ(placements.left().ssd_bytes, 4 * kPage);
}

class HomesTest : public ::testing::Test {
 protected:
  HomesTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kRecords * kRecordBytes, 1)).has_value());
  }
  void ExpectAllThatHaveAHomeAreThere() {
    std::uint64_t on_ssd = 0;
    for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
      const plan::HomeTier home = rig_.dataset().home(ExtentId(i));
      on_ssd += home == plan::HomeTier::kSsd ? 1 : 0;
      if (home == plan::HomeTier::kNone) continue;
      EXPECT_TRUE(rig_.cache().Find(rig_.dataset().key(ExtentId(i)))) << "extent " << i;
    }
    EXPECT_GT(on_ssd, 0U);
  }

  std::optional<ExtentId> WithHome(plan::HomeTier home) {
    for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
      if (rig_.dataset().home(ExtentId(i)) == home) return ExtentId(i);
    }
    return std::nullopt;
  }

  static constexpr std::uint64_t kRecordBytes = 100;
  static constexpr std::uint64_t kRecords = 6550;  // in 10 extents, each with 3 pages of trailer
  io::MemoryBackend memory_;
  StageRig rig_{memory_, ""};
};

TEST_F(HomesTest, OnASmallSsdNoExtentTakesAnothersPlace) {
  FOREBAY_EXPECT_OK(rig_.Start(RecordDataset(kRecordBytes), {.ram_bytes = 5 * (64 << 10),
                                                             .reserve_bytes = 2 * (64 << 10),
                                                             .ssd_bytes = 8 * (64 << 10)}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_GT(rig_.dataset().bytes_without_home(), 0U);
  ExpectAllThatHaveAHomeAreThere();
}

TEST_F(HomesTest, WhatAReaderWishesForInRamIsAGuestThere) {
  FOREBAY_EXPECT_OK(rig_.Start(RecordDataset(kRecordBytes), {.ram_bytes = 6 * (64 << 10)}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const ExtentId guest = WithHome(plan::HomeTier::kNone).value();
  std::promise<Status> told;
  rig_.stager().Demand(rig_.dataset(), guest, [&](const Status& status) { told.set_value(status); },
                       Stager::Access::kInRam);
  FOREBAY_EXPECT_OK(told.get_future().get());
  ASSERT_TRUE(rig_.cache().Find(rig_.dataset().key(guest)));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
    if (rig_.dataset().home(ExtentId(i)) != plan::HomeTier::kRam) continue;
    EXPECT_TRUE(rig_.cache().Find(rig_.dataset().key(ExtentId(i)))) << "extent " << i;
  }
}

TEST_F(HomesTest, WhatLiesInRamAndBelongsOnTheSsdIsWrittenThere) {
  FOREBAY_EXPECT_OK(rig_.Start(RecordDataset(kRecordBytes), {.ram_bytes = 6 * (64 << 10),
                                                             .reserve_bytes = 2 * (64 << 10),
                                                             .ssd_bytes = 20 * (64 << 10)}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const ExtentId extent = WithHome(plan::HomeTier::kSsd).value();
  const tier::ExtentKey& key = rig_.dataset().key(extent);
  FOREBAY_EXPECT_OK(rig_.cache().Evict(key, std::nullopt));
  std::promise<Status> told;
  rig_.stager().Demand(
      rig_.dataset(), extent, [&](const Status& status) { told.set_value(status); },
      Stager::Access::kInRam);
  FOREBAY_EXPECT_OK(told.get_future().get());
  EXPECT_FALSE(rig_.cache().FindOn(key, tier::TierKind::kSsd));
  const std::uint64_t gfs_bytes = rig_.dataset().progress().gfs_bytes;
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_TRUE(rig_.cache().FindOn(key, tier::TierKind::kSsd));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, gfs_bytes) << "RAM has it";
}

TEST_F(HomesTest, GuestsOnTheSsdTakeNoPlaceOfWhatIsAtHomeThere) {
  FOREBAY_EXPECT_OK(rig_.Start(RecordDataset(kRecordBytes), {.ram_bytes = 5 * (64 << 10),
                                                             .reserve_bytes = 2 * (64 << 10),
                                                             .ssd_bytes = 5 * (64 << 10)}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  for (const tier::ExtentKey& key : rig_.cache().Resident(tier::TierKind::kSsd)) {
    FOREBAY_EXPECT_OK(rig_.cache().Evict(key, tier::TierKind::kSsd));
  }
  // They evict each other from RAM, and are written to SSD while SSD has space.
  for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
    if (rig_.dataset().home(ExtentId(i)) != plan::HomeTier::kNone) continue;
    FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(i)));
  }
  for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
    if (rig_.dataset().home(ExtentId(i)) != plan::HomeTier::kNone) continue;
    FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(i)));
  }
  EXPECT_GT(rig_.cache().stats(tier::TierKind::kRam).spilled, 0U);
  FOREBAY_EXPECT_OK(rig_.StageAll());
  ExpectAllThatHaveAHomeAreThere();
}

// A data set of which this node keeps extent 0 only, and copies of two others.
TEST_F(PlacementTableTest, WantedCopiesTakeTheRoomOfOthersWithinTheBudget) {
  constexpr std::uint64_t kBytes = 65'000, kRam = 16 * kPage;  // of an extent
  io::MemoryBackend memory;
  ASSERT_TRUE(memory.AddFile("/gfs/data.bin", Pattern(5 * kBytes)).has_value());
  DatasetOptions options = RecordDataset();
  options.copy_bytes = 2 * kBytes;
  Dataset dataset(options, memory, io::testing::Take(memory.OpenDirectory("/gfs")));
  auto catalog = io::testing::Take(
      catalog::BuildFromMetadata(memory, dataset.root(), options.source, nullptr));
  ASSERT_EQ(catalog->extent_count(), 5U);
  ASSERT_TRUE(dataset.BeginCataloguing(0));
  dataset.SetRemote({false, true, true, true, true});
  using plan::HomeTier;
  dataset.SetCatalog(catalog, tier::KeysOf(*catalog), std::vector<bool>(5, false),
                     {HomeTier::kRam, HomeTier::kRam, HomeTier::kRam, HomeTier::kNone,
                      HomeTier::kNone});
  // One more extent would fit.
  PlacementTable placements({.ram_bytes = kRam, .ssd_bytes = 0}, clock_);
  const std::vector<ExtentId> wanted = {ExtentId(0), ExtentId(2), ExtentId(3), ExtentId(4)};
  dataset.WantCopies(wanted);
  const PlacementTable::NewCopies copies = placements.PlaceCopies(dataset, wanted);
  EXPECT_TRUE(copies.has_placed);
  // Extent 2 is wanted and stays, so only one of the other two fits in the budget.
  EXPECT_EQ(copies.dropped, std::vector{dataset.key(ExtentId(1))});
  EXPECT_EQ(dataset.home(ExtentId(0)), HomeTier::kRam) << "no copy";
  EXPECT_EQ(dataset.home(ExtentId(1)), HomeTier::kNone);
  EXPECT_EQ(dataset.home(ExtentId(2)), HomeTier::kRam);
  EXPECT_EQ(dataset.home(ExtentId(3)), HomeTier::kRam);
  EXPECT_EQ(dataset.home(ExtentId(4)), HomeTier::kNone);
  EXPECT_EQ(placements.left().ram_bytes, kRam) << "one took the place of the other";
  const PlacementTable::NewCopies again = placements.PlaceCopies(dataset, wanted);
  EXPECT_FALSE(again.has_placed);
  EXPECT_TRUE(again.dropped.empty());
  // Another stream's wishes have to wait until this one is closed.
  const std::vector<ExtentId> others = {ExtentId(4), ExtentId(1)};
  dataset.WantCopies(others);
  EXPECT_FALSE(placements.PlaceCopies(dataset, others).has_placed);
  dataset.UnwantCopies(wanted);
  EXPECT_EQ(placements.PlaceCopies(dataset, others).dropped.size(), 2U);
  EXPECT_EQ(dataset.home(ExtentId(4)), HomeTier::kRam);
  EXPECT_EQ(dataset.home(ExtentId(1)), HomeTier::kRam);
}

// A full disk. This node keeps extent 0, on SSD, and copies of 1 on SSD and of 2 in RAM.
TEST_F(PlacementTableTest, AnSsdThatRefusesExtentsGetsNoFurtherOnesOfOthers) {
  constexpr std::uint64_t kBytes = 65'000, kRam = 16 * kPage;  // of an extent
  using plan::HomeTier;
  using enum PlacementTable::Share;
  io::MemoryBackend memory;
  ASSERT_TRUE(memory.AddFile("/gfs/data.bin", Pattern(6 * kBytes)).has_value());
  DatasetOptions options = RecordDataset();
  options.copy_bytes = 6 * kBytes;
  Dataset dataset(options, memory, io::testing::Take(memory.OpenDirectory("/gfs")));
  auto catalog = io::testing::Take(
      catalog::BuildFromMetadata(memory, dataset.root(), options.source, nullptr));
  ASSERT_EQ(catalog->extent_count(), 6U);
  ASSERT_TRUE(dataset.BeginCataloguing(0));
  dataset.SetRemote({false, true, true, true, true, true});
  dataset.SetCatalog(catalog, tier::KeysOf(*catalog), std::vector<bool>(6, false),
                     {HomeTier::kSsd, HomeTier::kSsd, HomeTier::kRam, HomeTier::kNone,
                      HomeTier::kNone, HomeTier::kNone});
  PlacementTable placements({.ram_bytes = 2 * kRam, .ssd_bytes = 100 * kPage}, clock_);
  EXPECT_EQ(placements.MoveOffSsd(dataset, ExtentId(0), kBytes), HomeTier::kRam);
  const std::uint64_t ssd_bytes = placements.left().ssd_bytes;
  const std::vector<ExtentId> wanted = {ExtentId(3), ExtentId(4), ExtentId(5)};
  dataset.WantCopies(wanted);
  const PlacementTable::NewCopies copies = placements.PlaceCopies(dataset, wanted);
  EXPECT_TRUE(copies.has_placed);
  EXPECT_EQ(copies.dropped, std::vector{dataset.key(ExtentId(2))})
      << "the copy on SSD makes no space that is of use";
  EXPECT_EQ(dataset.home(ExtentId(1)), HomeTier::kSsd);
  EXPECT_EQ(dataset.home(ExtentId(3)), HomeTier::kRam);
  EXPECT_EQ(dataset.home(ExtentId(4)), HomeTier::kRam);
  EXPECT_EQ(dataset.home(ExtentId(5)), HomeTier::kNone);
  const std::vector<ExtentId> five = {ExtentId(5)};
  placements.PlaceAgain(dataset, five, kOfOthers);
  EXPECT_EQ(dataset.home(ExtentId(5)), HomeTier::kNone);
  EXPECT_EQ(placements.Reserve(kKey, std::nullopt, kPage, 1, kOfOthers).home, HomeTier::kNone);
  EXPECT_EQ(placements.left().ssd_bytes, ssd_bytes);
  // It is tried for own extents, because the epoch needs them.
  EXPECT_EQ(placements.Reserve(kKey, std::nullopt, kPage, 1).home, HomeTier::kSsd);
  placements.RetrySsd();
  placements.PlaceAgain(dataset, five, kOfOthers);
  EXPECT_EQ(dataset.home(ExtentId(5)), HomeTier::kSsd);
  placements.CloseSsd();
  clock_.AdvanceNs(2 * PlacementTable::kSsdPauseMaxNs);
  const std::vector<ExtentId> two = {ExtentId(2)};
  dataset.WantCopies(two);
  EXPECT_TRUE(placements.PlaceCopies(dataset, two).dropped.empty())
      << "extent 1 is still read from an SSD that is retired";
}

// In a compressed data set, some extents get a home only because others are smaller than planned.
TEST_F(PlacementTableTest, APassThatTakesOverGivesNothingToAnSsdThatRefusesExtents) {
  constexpr std::uint64_t kBytes = 65'000;  // planned for an extent
  using plan::HomeTier;
  io::MemoryBackend memory;
  ASSERT_TRUE(memory.AddFile("/gfs/data.bin", Pattern(3 * kBytes)).has_value());
  const DatasetOptions options = RecordDataset();
  Dataset dataset(options, memory, io::testing::Take(memory.OpenDirectory("/gfs")));
  const auto catalog = io::testing::Take(
      catalog::BuildFromMetadata(memory, dataset.root(), options.source, nullptr));
  ASSERT_EQ(catalog->extent_count(), 3U);
  ASSERT_TRUE(dataset.BeginCataloguing(0));
  dataset.SetPlannedBytes(std::vector<std::uint64_t>(3, kBytes));
  dataset.SetCatalog(catalog, tier::KeysOf(*catalog), std::vector<bool>(3, false),
                     {HomeTier::kSsd, HomeTier::kRam, HomeTier::kNone});
  PlacementTable placements({.ram_bytes = 0, .ssd_bytes = 100 * kPage}, clock_);
  EXPECT_EQ(placements.MoveOffSsd(dataset, ExtentId(0), kBytes), HomeTier::kNone);
  ASSERT_TRUE(dataset.Claim(ExtentId(0)));
  dataset.SetPassTakesOver(true);
  EXPECT_FALSE(placements.Place(dataset, ExtentId(1), kBytes - kPage).has_placed_others);
  EXPECT_EQ(placements.left().ram_bytes, kPage);
  EXPECT_EQ(dataset.home(ExtentId(2)), HomeTier::kNone);
  dataset.SetPassTakesOver(false);
  EXPECT_TRUE(placements.Place(dataset, ExtentId(1), kBytes - 2 * kPage).has_placed_others);
  EXPECT_EQ(dataset.home(ExtentId(2)), HomeTier::kSsd) << "own extents are tried there";
}

TEST_F(PlacementTableTest, AnSsdThatHasRefusedAnExtentIsTriedAgainAfterGrowingPauses) {
  using enum PlacementTable::Share;
  PlacementTable placements({.ram_bytes = 0, .ssd_bytes = 1000 * kPage}, clock_);
  tier::ExtentKey key = kKey;
  const auto is_tried = [&](PlacementTable::Share share) {
    key.extent = ExtentId(key.extent.value() + 1);
    return placements.Reserve(key, std::nullopt, kPage, 1, share).home == plan::HomeTier::kSsd;
  };
  const auto refuse = [&] {
    EXPECT_TRUE(is_tried(kOwn));
    EXPECT_EQ(placements.MoveOffSsd(key), plan::HomeTier::kNone);
  };
  EXPECT_TRUE(is_tried(kOfOthers));
  std::int64_t pause_ns = PlacementTable::kSsdPauseMinNs;
  for (int round = 0; round < 6; ++round) {
    refuse();
    EXPECT_FALSE(is_tried(kOfOthers));
    clock_.AdvanceNs(pause_ns - 1);
    EXPECT_FALSE(is_tried(kOfOthers)) << "round " << round;
    refuse();  // does not make the pause longer
    clock_.AdvanceNs(1);
    EXPECT_TRUE(is_tried(kOfOthers)) << "round " << round;
    pause_ns = std::min(2 * pause_ns, PlacementTable::kSsdPauseMaxNs);
  }
  EXPECT_EQ(pause_ns, PlacementTable::kSsdPauseMaxNs) << "too few rounds to see the longest pause";
  clock_.AdvanceNs(PlacementTable::kSsdPauseMaxNs);
  refuse();
  clock_.AdvanceNs(PlacementTable::kSsdPauseMinNs);
  EXPECT_TRUE(is_tried(kOfOthers)) << "it has worked for long, so the first pause is short again";
}

TEST_F(HomesTest, CopiesForTheNextDaemonTakeNoExtentsPlace) {
  DatasetOptions dataset = RecordDataset(kRecordBytes);
  dataset.persist = true;
  FOREBAY_EXPECT_OK(rig_.Start(dataset, {.ram_bytes = 9 * (64 << 10),
                                         .reserve_bytes = 2 * (64 << 10),
                                         .ssd_bytes = 7 * (64 << 10)}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  ExpectAllThatHaveAHomeAreThere();
  // An extent whose home is RAM but which is only on SSD is promoted before others go to SSD.
  for (const tier::ExtentKey& key : rig_.cache().Resident(tier::TierKind::kRam)) {
    FOREBAY_EXPECT_OK(rig_.cache().Evict(key, tier::TierKind::kRam));
  }
  FOREBAY_EXPECT_OK(rig_.StageAll());
  ExpectAllThatHaveAHomeAreThere();
}

}  // namespace
}  // namespace forebay::stage
