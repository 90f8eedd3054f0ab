// The table of extents: which thread may load an extent, which waiters are called, and when a pass
// ends.
#include "server/stage/dataset.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage {
namespace {

using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;
using plan::HomeTier;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::uint32_t kExtents = 4;

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(4 * 65'000)).has_value());
    dataset_.emplace(RecordDataset(), memory_, Take(memory_.OpenDirectory("/gfs")));
    catalog_ = Take(catalog::BuildFromMetadata(memory_, dataset_->root(),
                                               dataset_->options().source, nullptr));
    EXPECT_EQ(catalog_->extent_count(), kExtents);
  }
  DatasetState state() const { return dataset_->progress().state; }
  void Catalogued(std::vector<bool> resident = std::vector<bool>(kExtents, false),
                  std::vector<HomeTier> homes = std::vector<HomeTier>(kExtents, HomeTier::kRam)) {
    EXPECT_TRUE(dataset_->BeginCataloguing(5 * kMs));
    dataset_->SetCatalog(catalog_, tier::KeysOf(*catalog_), resident, std::move(homes));
  }
  // Records outcomes in the order of the calls: 0 is success.
  Waiter Record() {
    return [this](const Status& status) { told_.push_back(CodeOf(status)); };
  }

  static constexpr auto kOk = static_cast<ErrorCode>(0);
  io::MemoryBackend memory_;
  std::optional<Dataset> dataset_;
  std::shared_ptr<const catalog::Catalog> catalog_;
  std::vector<ErrorCode> told_;
};

// The pass does not end before it has loaded the extents that got a home while it was under way.
TEST_F(DatasetTest, BringsWhatGetsAHomeLate) {
  Catalogued(std::vector<bool>(kExtents, false),
             {HomeTier::kRam, HomeTier::kNone, HomeTier::kNone, HomeTier::kNone});
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(0));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
  EXPECT_EQ(dataset_->NextWithoutHome(), ExtentId(1));
  EXPECT_TRUE(dataset_->Claim(ExtentId(1))) << "a reader asks for it";
  EXPECT_FALSE(dataset_->GiveHome(ExtentId(1), HomeTier::kSsd)) << "a demand loads it already";
  EXPECT_EQ(dataset_->home(ExtentId(1)), HomeTier::kNone);
  EXPECT_EQ(dataset_->NextWithoutHome(), ExtentId(2));
  EXPECT_TRUE(dataset_->GiveHome(ExtentId(2), HomeTier::kSsd));
  EXPECT_EQ(dataset_->NextWithoutHome(), ExtentId(3));
  EXPECT_FALSE(dataset_->Report(ExtentId(0), {}, 0));
  EXPECT_FALSE(dataset_->Report(ExtentId(1), {}, 0));
  EXPECT_EQ(state(), DatasetState::kStaging);
  EXPECT_EQ(dataset_->home(ExtentId(2)), HomeTier::kSsd);
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(2));
  EXPECT_TRUE(dataset_->Report(ExtentId(2), {}, 0));
  EXPECT_EQ(state(), DatasetState::kStaged);
  EXPECT_EQ(dataset_->NextWithoutHome(), std::nullopt) << "the pass is over";
}

TEST_F(DatasetTest, CopiesOfWhatOtherNodesKeepAreStagedLast) {
  dataset_->SetRemote({true, true, false, false});
  Catalogued(std::vector<bool>(kExtents, false),
             {HomeTier::kRam, HomeTier::kNone, HomeTier::kRam, HomeTier::kRam});
  EXPECT_EQ(dataset_->copied_bytes(), 65'000U);
  EXPECT_EQ(dataset_->bytes_of_others(), 65'000U) << "without the copy";
  EXPECT_EQ(dataset_->bytes_without_home(), 0U) << "an extent of others is not missing";
  for (const std::uint32_t extent : {2U, 3U, 0U}) {
    EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(extent));
    EXPECT_EQ(dataset_->Report(ExtentId(extent), {}, 0), extent == 0);
  }
  EXPECT_EQ(state(), DatasetState::kStaged);
  // Between two passes the nodes that live are looked at again. Extent 2 now belongs to another
  // one, but is here already.
  dataset_->SetRemote({true, true, true, false});
  EXPECT_EQ(dataset_->copied_bytes(), 65'000U);
  // In a later pass too. Extent 0 was evicted, extent 2 is on a tier.
  ASSERT_TRUE(dataset_->BeginStagingAgain({false, false, true, false}, 0));
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(3));
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(0));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
}

TEST_F(DatasetTest, ACopyThatNoStreamWantsGivesItsHomeAway) {
  dataset_->SetRemote({true, true, true, false});
  Catalogued({false, false, false, true},
             {HomeTier::kRam, HomeTier::kSsd, HomeTier::kNone, HomeTier::kRam});
  const std::vector<ExtentId> wanted = {ExtentId(1), ExtentId(2)};
  dataset_->WantCopies(wanted);
  EXPECT_THAT(dataset_->UnwantedCopies(), ElementsAre(ExtentId(0)));
  EXPECT_TRUE(dataset_->Claim(ExtentId(0)));
  EXPECT_EQ(dataset_->DropCopy(ExtentId(0)), std::nullopt) << "it is being loaded";
  EXPECT_FALSE(dataset_->Report(ExtentId(0), {}, 0));
  EXPECT_EQ(dataset_->DropCopy(ExtentId(0)), HomeTier::kRam);
  EXPECT_EQ(dataset_->home(ExtentId(0)), HomeTier::kNone);
  EXPECT_TRUE(dataset_->GiveHome(ExtentId(2), HomeTier::kRam));
  // The pass that is under way stages the wanted ones, and not the dropped one.
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(1));
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(2));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
}

TEST_F(DatasetTest, WhatGotAHomeLateMayBeBroughtByADemand) {
  Catalogued(std::vector<bool>(kExtents, false),
             {HomeTier::kRam, HomeTier::kNone, HomeTier::kNone, HomeTier::kNone});
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(0));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
  EXPECT_TRUE(dataset_->GiveHome(ExtentId(1), HomeTier::kRam));
  EXPECT_TRUE(dataset_->Claim(ExtentId(1)));
  EXPECT_FALSE(dataset_->Report(ExtentId(1), {}, 0));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt) << "it is there";
  EXPECT_TRUE(dataset_->Report(ExtentId(0), {}, 0));
}

TEST_F(DatasetTest, GoesFromIdleToStaged) {
  EXPECT_EQ(state(), DatasetState::kIdle);
  EXPECT_EQ(dataset_->catalog(), nullptr);
  EXPECT_TRUE(dataset_->BeginCataloguing(5 * kMs));
  EXPECT_EQ(state(), DatasetState::kCataloguing);
  dataset_->SetCatalog(catalog_, tier::KeysOf(*catalog_), std::vector<bool>(kExtents),
                       std::vector<HomeTier>(kExtents));
  EXPECT_EQ(state(), DatasetState::kStaging);
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    EXPECT_EQ(dataset_->ClaimNext(6 * kMs), ExtentId(i)) << "in staging order";
  }
  EXPECT_EQ(dataset_->ClaimNext(7 * kMs), std::nullopt);
  EXPECT_EQ(state(), DatasetState::kStaging) << "loads are under way";
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    EXPECT_EQ(dataset_->Report(ExtentId(i), {}, 9 * kMs), i + 1 == kExtents)
        << "the last report settles the pass";
  }
  EXPECT_EQ(state(), DatasetState::kStaged);
  EXPECT_EQ(dataset_->progress().staging_ms, 4u);
  EXPECT_EQ(dataset_->progress().total_bytes, catalog_->total_bytes());
}

TEST_F(DatasetTest, BeginsOnlyOnce) {
  EXPECT_TRUE(dataset_->BeginCataloguing(0));
  EXPECT_FALSE(dataset_->BeginCataloguing(0)) << "under way";
  dataset_->SetCatalog(catalog_, tier::KeysOf(*catalog_), std::vector<bool>(kExtents, true),
                       std::vector<HomeTier>(kExtents));
  EXPECT_FALSE(dataset_->BeginCataloguing(0));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
  EXPECT_EQ(state(), DatasetState::kStaged) << "everything was there already";
  EXPECT_FALSE(dataset_->BeginCataloguing(0)) << "done";
  EXPECT_FALSE(dataset_->BeginStagingAgain(std::vector<bool>(kExtents, true), 0));
  std::vector<bool> one_is_missing(kExtents, true);
  one_is_missing[2] = false;
  EXPECT_TRUE(dataset_->BeginStagingAgain(one_is_missing, 0));
  EXPECT_FALSE(dataset_->BeginStagingAgain(one_is_missing, 0)) << "under way";
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(2));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
  EXPECT_TRUE(dataset_->Report(ExtentId(2), {}, 0));
  EXPECT_FALSE(dataset_->BeginCataloguing(0)) << "a data set has one catalog in its life";
}

TEST_F(DatasetTest, TheBackgroundLeavesExtentsWithoutHomeToDemands) {
  Catalogued({false, false, true, false},
             {HomeTier::kRam, HomeTier::kNone, HomeTier::kRam, HomeTier::kNone});
  EXPECT_EQ(dataset_->bytes_without_home(), 2 * 65'000u);
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(0));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
  EXPECT_TRUE(dataset_->Claim(ExtentId(1)));
  dataset_->Report(ExtentId(0), {}, 0);
  EXPECT_EQ(state(), DatasetState::kStaging);
  dataset_->Report(ExtentId(1), {}, 0);
  EXPECT_EQ(state(), DatasetState::kStaged);
}

TEST_F(DatasetTest, OneClaimAtATime) {
  Catalogued();
  EXPECT_TRUE(dataset_->Claim(ExtentId(0)));
  EXPECT_FALSE(dataset_->Claim(ExtentId(0))) << "a load is under way";
  dataset_->Report(ExtentId(0), {}, 0);
  EXPECT_TRUE(dataset_->Claim(ExtentId(0))) << "evicted since, says the caller";
  dataset_->Report(ExtentId(0), Error(ErrorCode::kDataLoss, "x"), 0);
  EXPECT_TRUE(dataset_->Claim(ExtentId(0))) << "a failed one may be tried again";
}

TEST_F(DatasetTest, WaitersAreCalledOnceWithTheOutcome) {
  Catalogued();
  EXPECT_TRUE(dataset_->Join(ExtentId(0), Record())) << "the first one has to load it";
  EXPECT_FALSE(dataset_->Join(ExtentId(0), Record()));
  dataset_->Report(ExtentId(0), {}, 0);
  EXPECT_THAT(told_, ElementsAre(kOk, kOk));
  ASSERT_TRUE(dataset_->Claim(ExtentId(0)));
  EXPECT_FALSE(dataset_->Join(ExtentId(0), Record())) << "it joins the load of somebody else";
  dataset_->Report(ExtentId(0), Error(ErrorCode::kDataLoss, "x"), 0);
  EXPECT_THAT(told_, ElementsAre(kOk, kOk, ErrorCode::kDataLoss));
}

TEST_F(DatasetTest, AWaiterMayAskAgainFromItsCall) {
  Catalogued();
  ASSERT_TRUE(dataset_->Join(ExtentId(0), [this](const Status&) {
    EXPECT_TRUE(dataset_->Join(ExtentId(0), Record()));
  }));
  dataset_->Report(ExtentId(0), {}, 0);
  dataset_->Report(ExtentId(0), {}, 0);
  EXPECT_THAT(told_, ElementsAre(kOk));
}

// One caller logs the end of a pass, and closes its objects.
TEST_F(DatasetTest, WhoEndsAPassByItsReportIsTold) {
  Catalogued({true, true, true, false});
  bool has_ended = true;
  EXPECT_EQ(dataset_->ClaimNext(0, &has_ended), ExtentId(3));
  has_ended = true;
  EXPECT_EQ(dataset_->ClaimNext(0, &has_ended), std::nullopt);
  EXPECT_FALSE(has_ended) << "a load is under way";
  EXPECT_TRUE(dataset_->Report(ExtentId(3), {}, 0));
  has_ended = true;
  EXPECT_EQ(dataset_->ClaimNext(0, &has_ended), std::nullopt);
  EXPECT_FALSE(has_ended) << "another caller was told";
}

TEST_F(DatasetTest, WhoFindsNothingLeftInAPassIsTold) {
  Catalogued({true, true, true, true});
  bool has_ended = false;
  EXPECT_EQ(dataset_->ClaimNext(0, &has_ended), std::nullopt);
  EXPECT_TRUE(has_ended);
  EXPECT_EQ(dataset_->ClaimNext(0, &has_ended), std::nullopt);
  EXPECT_FALSE(has_ended) << "once";
}

TEST_F(DatasetTest, CatalogWaitersAreToldAtOnceWhereItIsKnown) {
  dataset_->WhenCatalogued(Record());
  EXPECT_THAT(told_, ElementsAre());
  Catalogued();
  EXPECT_THAT(told_, ElementsAre(kOk));
  dataset_->WhenCatalogued(Record());
  EXPECT_THAT(told_, ElementsAre(kOk, kOk));
}

TEST_F(DatasetTest, AnExtentCountsAsStagedOnce) {
  dataset_->CountStaged(ExtentId(2), 10);  // a pass over tar shards: no catalog yet
  dataset_->CountStaged(ExtentId(2), 10);
  dataset_->CountStaged(ExtentId(0), 5);
  EXPECT_EQ(dataset_->progress().staged_bytes, 15u);
}

TEST_F(DatasetTest, CountsWhatTheGfsDid) {
  dataset_->CountGfs(1, 2, 3, 4);
  dataset_->CountGfs(10, 20, 30, 40);
  const DatasetProgress progress = dataset_->progress();
  EXPECT_EQ(progress.gfs_opens, 11u);
  EXPECT_EQ(progress.gfs_reads, 22u);
  EXPECT_EQ(progress.gfs_bytes, 33u);
  EXPECT_EQ(progress.gfs_stats, 44u);
}

TEST_F(DatasetTest, EveryStateHasAName) {
  EXPECT_EQ(DatasetStateName(DatasetState::kIdle), "idle");
  EXPECT_EQ(DatasetStateName(DatasetState::kCataloguing), "cataloguing");
  EXPECT_EQ(DatasetStateName(DatasetState::kStaging), "staging");
  EXPECT_EQ(DatasetStateName(DatasetState::kStaged), "staged");
  EXPECT_EQ(DatasetStateName(DatasetState::kFailed), "failed");
}

TEST_F(DatasetTest, ReadsSmallFilesWhole) {
  ASSERT_TRUE(memory_.AddFile("/gfs/split.txt", std::as_bytes(std::span("1\n2\n", 4)))
                  .has_value());
  EXPECT_EQ(Take(dataset_->ReadSmall("split.txt", 4)), "1\n2\n");
  ASSERT_TRUE(memory_.AddFile("/gfs/empty.txt", {}).has_value());
  EXPECT_EQ(Take(dataset_->ReadSmall("empty.txt", 0)), "");
  EXPECT_EQ(dataset_->progress().gfs_bytes, 0u) << "these are no sample bytes";
}

// --- every error branch -------------------------------------------------------------------

TEST_F(DatasetTest, RefusesSmallFilesThatAreNot) {
  ASSERT_TRUE(memory_.AddFile("/gfs/split.txt", Pattern(5)).has_value());
  const auto read = dataset_->ReadSmall("split.txt", 4);
  ASSERT_EQ(CodeOf(read), ErrorCode::kResourceExhausted);
  EXPECT_THAT(read.error().message(), HasSubstr("'split.txt'"));
  EXPECT_EQ(CodeOf(dataset_->ReadSmall("gone.txt", 4)), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(dataset_->ReadSmall("../ssd", 4)), ErrorCode::kPermissionDenied);
}

TEST_F(DatasetTest, ThePassFailsWithItsFirstErrorOnceAllHasSettled) {
  Catalogued();
  for (std::uint32_t i = 0; i < kExtents; ++i) dataset_->ClaimNext(0);
  dataset_->Report(ExtentId(2), Error(ErrorCode::kDataLoss, "the first"), 0);
  dataset_->Report(ExtentId(1), Error(ErrorCode::kDataLoss, "the second"), 0);
  dataset_->Report(ExtentId(0), {}, 0);
  EXPECT_EQ(state(), DatasetState::kStaging);
  EXPECT_TRUE(dataset_->Report(ExtentId(3), {}, 0));
  EXPECT_EQ(state(), DatasetState::kFailed);
  EXPECT_THAT(dataset_->progress().error, HasSubstr("the first"));
}

TEST_F(DatasetTest, AFailedPassStartsOverWithTheSameCatalog) {
  Catalogued({true, true, true, false});
  dataset_->ClaimNext(0);
  dataset_->Report(ExtentId(3), Error(ErrorCode::kDataLoss, "x"), 0);
  dataset_->ClaimNext(0);
  ASSERT_EQ(state(), DatasetState::kFailed);
  // A demand that is under way when the second pass begins ends by itself.
  ASSERT_TRUE(dataset_->Claim(ExtentId(1)));
  const tier::ExtentKey* key = &dataset_->key(ExtentId(1));
  EXPECT_FALSE(dataset_->BeginCataloguing(0)) << "it has its catalog";
  ASSERT_TRUE(dataset_->BeginStagingAgain({true, false, true, false}, 0));
  EXPECT_EQ(key, &dataset_->key(ExtentId(1))) << "readers hold references to the keys";
  EXPECT_EQ(dataset_->progress().error, "");
  EXPECT_EQ(dataset_->ClaimNext(0), ExtentId(3));
  EXPECT_EQ(dataset_->ClaimNext(0), std::nullopt);
  dataset_->Report(ExtentId(3), {}, 0);
  EXPECT_EQ(state(), DatasetState::kStaging);
  dataset_->Report(ExtentId(1), {}, 0);
  EXPECT_EQ(state(), DatasetState::kStaged);
}

TEST_F(DatasetTest, CatalogWaitersAreToldOfFailure) {
  dataset_->WhenCatalogued(Record());
  ASSERT_TRUE(dataset_->BeginCataloguing(0));
  dataset_->Fail({.error = Error(ErrorCode::kInvalidArgument, "no tar")});
  EXPECT_EQ(state(), DatasetState::kFailed);
  dataset_->WhenCatalogued(Record());
  EXPECT_THAT(told_, ElementsAre(ErrorCode::kInvalidArgument, ErrorCode::kInvalidArgument));
  EXPECT_THAT(dataset_->progress().error, HasSubstr("no tar"));
  EXPECT_TRUE(dataset_->BeginCataloguing(0)) << "it may be tried again";
}

TEST_F(DatasetTest, AbandonedCatalogWaitersAreToldOnce) {
  dataset_->WhenCatalogued(Record());
  dataset_->AbandonCatalogWaiters(Error(ErrorCode::kCancelled, "bye"));
  dataset_->AbandonCatalogWaiters(Error(ErrorCode::kCancelled, "bye"));
  Catalogued();
  EXPECT_THAT(told_, ElementsAre(ErrorCode::kCancelled));
}

// A call that comes while the daemon ends: nobody would call its waiter later.
TEST_F(DatasetTest, WhoComesAfterTheCatalogWaitersWereAbandonedIsToldAtOnce) {
  dataset_->AbandonCatalogWaiters(Error(ErrorCode::kCancelled, "bye"));
  dataset_->WhenCatalogued(Record());
  EXPECT_THAT(told_, ElementsAre(ErrorCode::kCancelled));
  ASSERT_TRUE(dataset_->BeginCataloguing(0));
  dataset_->WhenCatalogued(Record());
  EXPECT_THAT(told_, ElementsAre(ErrorCode::kCancelled, ErrorCode::kCancelled));
}

}  // namespace
}  // namespace forebay::stage
