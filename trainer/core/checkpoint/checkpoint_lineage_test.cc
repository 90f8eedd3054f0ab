// Which checkpoints of a folder belong to a run and which are moved aside, on real folders; and
// how ranks agree on an error.
#include "trainer/core/checkpoint/checkpoint_lineage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/loop/rank_agreement.h"
#include "trainer/core/loop/run_start.h"
#include "trainer/testing/stored_checkpoint.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kRun = "00000000000000aa";
constexpr const char* kOther = "00000000000000bb";

class CheckpointLineageTest : public ::testing::Test {
 protected:
  fs::path folder() const { return temp_.path() / "run"; }
  fs::path Best() const { return folder() / kBestFolder; }

  void Save(const fs::path& folder, std::uint64_t step, const std::string& run = kRun) {
    Checkpoint checkpoint;
    checkpoint.run = run;
    checkpoint.model = "m";
    checkpoint.global_step = step;
    checkpoint.tensors = {{.name = "w", .dtype = "U8", .shape = {1}, .bytes = {std::byte{7}}}};
    const auto stored = testing::Store(checkpoint, folder);
    ASSERT_TRUE(stored.has_value()) << stored.error().ToString();
  }
  // All that lies below, as paths of checkpoints.
  std::vector<std::string> All() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
      if (!fs::exists(entry.path() / kManifestName)) continue;
      found.push_back(entry.path().lexically_relative(folder()).string());
    }
    std::ranges::sort(found);
    return found;
  }
  void Damage(const fs::path& checkpoint) { fs::resize_file(checkpoint / kManifestName, 5); }

  testing::TempFolder temp_;
};

TEST_F(CheckpointLineageTest, AFolderThatIsNotThereOrEmptyIsUnused) {
  EXPECT_TRUE(CheckUnused(folder()).has_value());
  fs::create_directories(Best());
  fs::create_directories(UnpublishedFolder(folder(), 3));
  fs::create_directories(folder() / "aside-00000000000000aa-1" / "step-000000000001");
  EXPECT_TRUE(CheckUnused(folder()).has_value());
}

TEST_F(CheckpointLineageTest, AUsedFolderNamesTheNewestAndWhatToDo) {
  Save(Best(), 4);
  EXPECT_THAT(CheckUnused(folder()).error().message(), HasSubstr("best/step-000000000004"));
  Save(folder(), 2);
  Save(folder(), 3);
  const Status used = CheckUnused(folder());
  ASSERT_FALSE(used.has_value());
  EXPECT_EQ(used.error().code(), ErrorCode::kAlreadyExists);
  for (const char* part : {"3 checkpoints of run 00000000000000aa", "step-000000000003",
                           "--new-run", "aside-00000000000000aa-1"}) {
    EXPECT_THAT(used.error().message(), HasSubstr(part));
  }
}

TEST_F(CheckpointLineageTest, LaterStepsGoAsideBestOnesToo) {
  for (const std::uint64_t step : {10U, 20U, 30U, 40U}) Save(folder(), step);
  Save(Best(), 30);
  const auto moved = MoveAside(folder(), CheckpointOrigin{.run = kRun, .step = 20});
  ASSERT_TRUE(moved.has_value()) << moved.error().ToString();
  ASSERT_EQ(moved->size(), 1U);
  EXPECT_THAT(moved->front(), HasSubstr("step-000000000030, step-000000000040, best/step-"));
  const std::string aside = "aside-00000000000000aa-1/";
  EXPECT_THAT(All(), ElementsAre(aside + "best/step-000000000030", aside + "step-000000000030",
                                 aside + "step-000000000040", "step-000000000010",
                                 "step-000000000020"));
  // Another time it has another number.
  EXPECT_TRUE(MoveAside(folder(), CheckpointOrigin{.run = kRun, .step = 20})->empty());
  EXPECT_FALSE(fs::exists(folder() / "aside-00000000000000aa-2"));
  ASSERT_TRUE(MoveAside(folder(), CheckpointOrigin{.run = kRun, .step = 10}).has_value());
  EXPECT_TRUE(fs::exists(folder() / "aside-00000000000000aa-2/step-000000000020"));
}

TEST_F(CheckpointLineageTest, WhatCannotBeMovedIsAnErrorAndStays) {
  for (const std::uint64_t step : {10U, 20U}) Save(folder(), step);
  std::ofstream(folder() / "aside-00000000000000aa-1");  // not a folder
  const auto moved = MoveAside(folder(), CheckpointOrigin{.run = kRun, .step = 10});
  ASSERT_FALSE(moved.has_value());
  EXPECT_THAT(moved.error().message(), HasSubstr("aside-00000000000000aa-1"));
  EXPECT_THAT(All(), ElementsAre("step-000000000010", "step-000000000020"));
}

TEST_F(CheckpointLineageTest, OtherRunsGoToFoldersOfTheirOwn) {
  Save(folder(), 10);
  Save(folder(), 20, kOther);
  Save(folder(), 30, "");
  const Status mixed = CheckOneRun(folder(), kRun);
  ASSERT_FALSE(mixed.has_value());
  EXPECT_EQ(mixed.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(mixed.error().message(), HasSubstr(kOther));
  ASSERT_TRUE(MoveAside(folder(), CheckpointOrigin{.run = kOther, .step = 20}).has_value());
  EXPECT_THAT(All(), ElementsAre("aside-00000000000000aa-1/step-000000000010",
                                 "aside-unnamed-1/step-000000000030", "step-000000000020"));
  EXPECT_TRUE(CheckOneRun(folder(), kOther).has_value());
}

TEST_F(CheckpointLineageTest, DamagedOnesCountForTheRunThatGoesOn) {
  for (const std::uint64_t step : {10U, 20U, 30U}) Save(folder(), step);
  Damage(folder() / "step-000000000010");
  Damage(folder() / "step-000000000030");
  EXPECT_TRUE(CheckOneRun(folder(), kRun).has_value());
  ASSERT_TRUE(MoveAside(folder(), CheckpointOrigin{.run = kRun, .step = 20}).has_value());
  EXPECT_THAT(All(), ElementsAre("aside-00000000000000aa-1/step-000000000030",
                                 "step-000000000010", "step-000000000020"));
}

TEST_F(CheckpointLineageTest, WithoutAHistoryToKeepAllGoes) {
  for (const std::uint64_t step : {10U, 20U}) Save(folder(), step);
  Save(Best(), 10);
  Damage(folder() / "step-000000000020");
  ASSERT_TRUE(MoveAside(folder(), std::nullopt).has_value());
  EXPECT_TRUE(CheckUnused(folder()).has_value());
  EXPECT_EQ(All().size(), 3U);
}

TEST_F(CheckpointLineageTest, WhereACheckpointLiesIsToldThroughLinks) {
  Save(folder(), 10);
  Save(Best(), 10);
  fs::create_directory_symlink(folder(), temp_.path() / "link");
  fs::create_directory_symlink("step-000000000010", folder() / "latest");
  EXPECT_TRUE(LiesIn(folder() / "step-000000000010", temp_.path() / "link"));
  EXPECT_TRUE(LiesIn(folder() / "step-000000000010/", folder()));
  EXPECT_TRUE(LiesIn(folder() / "latest", folder()));
  EXPECT_TRUE(LiesIn(Best() / "step-000000000010", folder()));
  EXPECT_FALSE(LiesIn(folder() / "step-000000000010", Best()));
  EXPECT_FALSE(LiesIn(folder() / "step-000000000011", folder()));
  EXPECT_FALSE(LiesIn(folder() / "step-000000000010", ""));
}

TEST_F(CheckpointLineageTest, AReplacementThatACrashInterruptedIsUndone) {
  Save(folder(), 10);
  fs::rename(folder() / "step-000000000010", folder() / "step-000000000010.replaced.tmp");
  ASSERT_TRUE(RestoreReplaced(folder()).has_value());
  EXPECT_TRUE(VerifyCheckpoint(folder() / "step-000000000010").has_value());
  // Where the new one has its name, the one before is what is left over.
  fs::copy(folder() / "step-000000000010", folder() / "step-000000000010.replaced.tmp",
           fs::copy_options::recursive);
  ASSERT_TRUE(CheckpointFolder::Open(folder(), 1).has_value());
  EXPECT_THAT(All(), ElementsAre("step-000000000010"));
  EXPECT_TRUE(RestoreReplaced(temp_.path() / "none").has_value());
}

TEST_F(CheckpointLineageTest, RetentionLeavesWhatIsNotAdopted) {
  for (const std::uint64_t step : {10U, 20U, 30U}) Save(folder(), step);
  auto open = CheckpointFolder::Open(folder(), 1);
  ASSERT_TRUE(open.has_value());
  const auto publish = [&](std::uint64_t step) {
    fs::copy(folder() / "step-000000000030", UnpublishedFolder(folder(), step),
             fs::copy_options::recursive);
    auto manifest = ReadManifest(UnpublishedFolder(folder(), step));
    ASSERT_TRUE(manifest.has_value());
    manifest->state.global_step = step;
    ASSERT_TRUE(open->Publish(*manifest).has_value());
  };
  publish(25);
  EXPECT_THAT(All(), ElementsAre("step-000000000010", "step-000000000020", "step-000000000025",
                                 "step-000000000030"));
  ASSERT_TRUE(open->Adopt().has_value());
  publish(40);
  EXPECT_THAT(All(), ElementsAre("step-000000000040"));
  // Even where others are of later steps.
  Save(folder(), 50);
  ASSERT_TRUE(open->Adopt().has_value());
  fs::copy(folder() / "step-000000000040", folder() / "step-000000000030",
           fs::copy_options::recursive);
  publish(45);
  EXPECT_TRUE(fs::exists(folder() / "step-000000000045"));
}

// Runs `work` as every rank of a job, each on a thread.
template <typename Work>
void OnRanks(std::uint32_t ranks, Work work) {
  std::vector<std::unique_ptr<Transport>> transports = MakeLocalTransports(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(std::move(transports[rank]));
      work(rank, communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CheckpointLineageTest, ARefusalReachesEveryRank) {
  Save(folder(), 10);
  std::vector<std::string> errors(3);
  OnRanks(3, [&](std::uint32_t rank, Communicator& communicator) {
    CheckpointConfig config;
    config.checkpoint_dir = folder();
    const std::function<void(const std::string&)> print = [](const std::string&) {};
    const std::function<std::uint64_t()> draw = [] { return 1; };
    const auto start = FindRunStart(config, {communicator, print, draw});
    if (!start.has_value()) errors[rank] = start.error().ToString();
  });
  EXPECT_THAT(errors[0], HasSubstr("ALREADY_EXISTS"));
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(RankAgreement, TheLowestRanksErrorIsEveryRanks) {
  std::vector<std::string> errors(4);
  OnRanks(4, [&](std::uint32_t rank, Communicator& communicator) {
    EXPECT_TRUE(AgreeOn({}, communicator).has_value());
    const Status own = rank % 2 == 0 ? Status()
                                     : Status(Error(ErrorCode::kDataLoss, std::to_string(rank)));
    const Status agreed = AgreeOn(own, communicator);
    if (!agreed.has_value()) errors[rank] = agreed.error().ToString();
  });
  EXPECT_THAT(errors, ::testing::Each("DATA_LOSS: rank 1: 1"));
}

TEST(RankAgreement, TextsOfRankZeroThatAreTooLongAreAnErrorOnAll) {
  std::vector<std::string> seen(2);
  OnRanks(2, [&](std::uint32_t rank, Communicator& communicator) {
    EXPECT_EQ(FromRankZero(rank == 0 ? "path" : "other", communicator).value(), "path");
    const auto text = FromRankZero(std::string(kAgreedTextBytesMax + 1, 'x'), communicator);
    ASSERT_FALSE(text.has_value());
    seen[rank] = text.error().ToString();
  });
  EXPECT_THAT(seen, ::testing::Each(HasSubstr("kAgreedTextBytesMax")));
}

}  // namespace
}  // namespace forebay::train
