// Saved catalogs, on a real file system: a daemon uses the catalog that an earlier one has saved,
// as long as objects and configuration are the same. In a job of several nodes, each looks at its
// share of the objects.
#include "server/stage/cataloguing/saved_catalog.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/queues/thread_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/plan/membership.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::saved_catalog_test {

using io::FaultKind;
using io::IoCall;
using io::testing::Pattern;
using ::testing::HasSubstr;

class SavedCatalogTest : public ::testing::Test {
 protected:
  SavedCatalogTest() {
    for (const char* name : {"gfs", "ssd", "state"}) {
      std::filesystem::create_directory(folder_ / name);
    }
    backend_ = io::testing::Take(io::ThreadBackend::Create());
    rig_.emplace(*backend_, folder_.path());
    Write(Pattern(200'000, 1));
  }
  void Write(const std::vector<std::byte>& bytes) {
    std::ofstream file(folder_ / "gfs/data.bin", std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  Status StartAndStage(bool rebuild = false) {
    rig_->Stop();
    FOREBAY_TRY(rig_->Start(RecordDataset(), {.saves_catalogs = true}));
    return rig_->StageAll(rebuild);
  }
  std::filesystem::path SavedPath() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "state")) {
      if (entry.path().extension() == ".catalog") return entry.path();
    }
    ADD_FAILURE() << "no catalog was saved";
    return {};
  }

  io::testing::TempFolder folder_;
  std::unique_ptr<io::ThreadBackend> backend_;
  std::optional<StageRig> rig_;
};

TEST_F(SavedCatalogTest, IsUsedAgain) {
  FOREBAY_EXPECT_OK(StartAndStage());
  const auto written = std::filesystem::last_write_time(SavedPath());
  const std::uint64_t fingerprint = rig_->dataset().catalog()->fingerprint();
  FOREBAY_EXPECT_OK(StartAndStage());
  EXPECT_EQ(std::filesystem::last_write_time(SavedPath()), written) << "it was built anew";
  EXPECT_EQ(rig_->dataset().catalog()->fingerprint(), fingerprint);
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

TEST_F(SavedCatalogTest, AChangedObjectIsRefusedWithTheRemedyAndRebuildMendsIt) {
  FOREBAY_EXPECT_OK(StartAndStage());
  Write(Pattern(210'000, 2));
  const Status refused = StartAndStage();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("FAILED_PRECONDITION"));
  EXPECT_THAT(refused.error().message(), HasSubstr("'data.bin'"));
  EXPECT_THAT(refused.error().message(), HasSubstr("forebay stage --rebuild data"));
  EXPECT_EQ(rig_->dataset().progress().gfs_bytes, 0u);
  FOREBAY_EXPECT_OK(rig_->StageAll(/*rebuild=*/true));
  EXPECT_EQ(rig_->dataset().catalog()->total_bytes(), 210'000u);
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
  FOREBAY_EXPECT_OK(StartAndStage());
  EXPECT_EQ(rig_->dataset().catalog()->total_bytes(), 210'000u) << "the new one was saved";
}

// As of a daemon that is killed: the next one makes a catalog of the objects as they are.
TEST_F(SavedCatalogTest, ARebuildThatDoesNotEndLeavesNoCatalogOfBefore) {
  FOREBAY_EXPECT_OK(StartAndStage());
  const std::filesystem::path saved = SavedPath();
  Write(Pattern(210'000, 2));
  EXPECT_FALSE(StartAndStage().has_value());
  EXPECT_TRUE(std::filesystem::exists(saved));
  rig_->gfs_faults.Arm({.kind = FaultKind::kEio, .call = IoCall::kStat, .is_persistent = true});
  EXPECT_FALSE(rig_->StageAll(/*rebuild=*/true).has_value());
  EXPECT_FALSE(std::filesystem::exists(saved));
  rig_->gfs_faults.Disarm();
  FOREBAY_EXPECT_OK(StartAndStage());
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

// A rebuild, which accepts the bytes as they are now, would be the wrong remedy.
TEST_F(SavedCatalogTest, AnObjectThatCannotBeLookedAtIsNotSaidToHaveChanged) {
  FOREBAY_EXPECT_OK(StartAndStage());
  rig_->gfs_faults.Arm({.kind = FaultKind::kEio, .call = IoCall::kStat, .is_persistent = true});
  const Status failed = StartAndStage();
  EXPECT_GT(rig_->gfs_faults.faults_injected(), 0U);
  rig_->gfs_faults.Disarm();
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("comparing the saved catalog of 'data'"));
  EXPECT_THAT(failed.error().message(), HasSubstr("'data.bin'"));
  EXPECT_THAT(failed.error().message(), Not(HasSubstr("--rebuild")));
  FOREBAY_EXPECT_OK(rig_->StageAll());
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

TEST_F(SavedCatalogTest, BytesThatChangedBetweenDaemonsUnderAnUnchangedTimeAreRefusedByName) {
  FOREBAY_EXPECT_OK(StartAndStage());
  const std::filesystem::path data = folder_ / "gfs/data.bin";
  const auto written = std::filesystem::last_write_time(data);
  std::vector<std::byte> bytes = Pattern(200'000, 1);
  bytes[70'000] ^= std::byte{1};
  Write(bytes);
  std::filesystem::last_write_time(data, written);
  const Status refused = StartAndStage();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("changed since first read"));
  FOREBAY_EXPECT_OK(rig_->StageAll(/*rebuild=*/true));  // these bytes are accepted
  FOREBAY_EXPECT_OK(StartAndStage());
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

TEST_F(SavedCatalogTest, ADamagedOneIsBuiltAnew) {
  FOREBAY_EXPECT_OK(StartAndStage());
  std::filesystem::resize_file(SavedPath(), 100);
  FOREBAY_EXPECT_OK(StartAndStage());
  EXPECT_GT(std::filesystem::file_size(SavedPath()), 100u);
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

// Names that earlier versions wrote, so that their catalogs are still found.
TEST(SavedCatalogNameTest, DependsOnTheConfigurationAloneAndStays) {
  catalog::DatasetSource plain;
  plain.name = "plain";
  EXPECT_EQ(SavedCatalogName(plain), "plain-0e9e36c6cddb938d.catalog");
  catalog::DatasetSource raw;
  raw.name = "raw";
  raw.format = catalog::Format::kRaw;
  raw.extent_bytes = 1 << 20;
  raw.settings.SetText("dtype", "f32");
  raw.settings.SetNumbers("shape", {3, 300});
  raw.settings.SetNumber("header", 128);
  raw.settings.SetTexts("files", {"x=a.bin", "y=b=c.bin"});
  EXPECT_EQ(SavedCatalogName(raw), "raw-d43414a7805f605b.catalog");
  catalog::DatasetSource packs;
  packs.name = "packs";
  packs.format = catalog::Format::kPack;
  packs.settings.SetTexts("files", {"b.pack", "k=v.pack"});
  EXPECT_EQ(SavedCatalogName(packs), "packs-0b746a16e0638a58.catalog");
  catalog::DatasetSource folder;
  folder.name = "folder";
  folder.format = catalog::Format::kImageFolder;
  folder.settings.SetTexts("suffixes", {".jpg", ".png"});
  EXPECT_EQ(SavedCatalogName(folder), "folder-feda49f95fd288e8.catalog");
  catalog::DatasetSource found;
  found.name = "found";
  found.settings.SetTexts("files", {"x=x.npy"});
  found.settings.SetText("dtype", "i16");
  EXPECT_EQ(SavedCatalogName(found), "found-b0cf713e55804716.catalog");
}

TEST_F(SavedCatalogTest, AnotherConfigurationNeverFindsIt) {
  FOREBAY_EXPECT_OK(StartAndStage());
  rig_->Stop();
  FOREBAY_EXPECT_OK(rig_->Start(RecordDataset(500), {.saves_catalogs = true}));
  FOREBAY_EXPECT_OK(rig_->StageAll());
  EXPECT_EQ(rig_->dataset().catalog()->sample_count(), 400u);
}

TEST_F(SavedCatalogTest, OneThatCannotBeSavedCostsOnlyAWarning) {
  rig_->Stop();
  FOREBAY_EXPECT_OK(rig_->Start(RecordDataset(), {.saves_catalogs = true}));
  rig_->ssd_faults.Arm({.kind = FaultKind::kEnospc, .call = std::nullopt, .is_persistent = true});
  FOREBAY_EXPECT_OK(rig_->StageAll());
  EXPECT_GT(rig_->ssd_faults.faults_injected(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "state"));
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

// Small files, of which an extent holds a hundred, beside the records of the other tests.
class SavedFolderTest : public SavedCatalogTest {
 protected:
  static constexpr std::uint32_t kFiles = 2'500;  // more than are looked at together
  static constexpr std::uint64_t kFileBytes = 100;

  SavedFolderTest() {
    std::filesystem::create_directory(folder_ / "gfs/class");
    for (std::uint32_t i = 0; i < kFiles; ++i) WriteFile(i, 'a');
    options_.source.name = "files";
    options_.source.format = catalog::Format::kImageFolder;
    options_.source.settings.SetTexts("suffixes", {".jpg"});
    options_.source.extent_bytes = 10'000;
  }
  void WriteFile(std::uint32_t number, char letter) {
    std::ofstream(folder_ / FilePath(number)) << std::string(kFileBytes, letter);
  }
  static std::string FilePath(std::uint32_t number) {
    return "gfs/class/" + std::to_string(10'000 + number) + ".jpg";
  }
  // Gives a file another modification time.
  void Touch(std::uint32_t number) {
    const std::filesystem::path path = folder_ / FilePath(number);
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path) + std::chrono::hours(1));
  }
  // Starts a daemon of its own for `rank` of two nodes, which finds the catalog of the daemons
  // before it.
  void Start(plan::Membership& nodes, std::uint64_t ssd_bytes = 0) {
    rig_->Stop();
    FOREBAY_EXPECT_OK(rig_->Start(
        options_, {.ssd_bytes = ssd_bytes, .saves_catalogs = true, .nodes = &nodes}));
  }
  std::uint32_t ExtentOfFile(std::uint32_t number) {
    const auto catalog = rig_->dataset().catalog();
    std::uint32_t extent = 0;
    while (extent + 1 < catalog->extent_count() &&
           catalog->extent(ExtentId(extent + 1)).first_object.value() <= number) {
      ++extent;
    }
    return extent;
  }
  // A file of an extent that this node, which has its catalog, reads or leaves to the other node.
  std::uint32_t FileThatIs(bool own, const plan::Membership& nodes) {
    for (std::uint32_t i = 0; i < kFiles; ++i) {
      if (nodes.Reads(rig_->dataset().group_key(ExtentId(ExtentOfFile(i)))) == own) return i;
    }
    ADD_FAILURE() << "all files belong to one node";
    return 0;
  }

  DatasetOptions options_;
  const std::vector<plan::Node> all_ = {{.rank = NodeRank(0), .identity = 1},
                                        {.rank = NodeRank(1), .identity = 2}};
  plan::Membership first_{NodeRank(0), all_};
  plan::Membership second_{NodeRank(1), all_};
};

TEST_F(SavedFolderTest, EachNodeLooksAtTheFilesOfItsShare) {
  Start(first_);
  FOREBAY_EXPECT_OK(rig_->StageAll());
  std::uint64_t stats = 0;
  for (plan::Membership* const nodes : {&first_, &second_}) {
    Start(*nodes);
    FOREBAY_EXPECT_OK(rig_->StageAll());
    const DatasetProgress progress = rig_->dataset().progress();
    EXPECT_GT(progress.gfs_stats, 0U);
    EXPECT_EQ(progress.gfs_stats, 2 * progress.gfs_opens)
        << "what is looked at is what is staged, and is checked again after its read";
    stats += progress.gfs_stats;
  }
  EXPECT_EQ(stats, 2 * kFiles);
}

TEST_F(SavedFolderTest, AChangedFileIsRefusedByTheNodeThatReadsIt) {
  Start(first_);
  FOREBAY_EXPECT_OK(rig_->StageAll());
  const std::uint32_t changed = FileThatIs(/*own=*/false, first_);
  Touch(changed);
  Start(first_);
  FOREBAY_EXPECT_OK(rig_->StageAll());
  Start(second_);
  const Status refused = rig_->StageAll();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(10'000 + changed) + ".jpg"));
  EXPECT_THAT(refused.error().message(), HasSubstr("forebay stage --rebuild files"));
  EXPECT_EQ(rig_->dataset().catalog(), nullptr);
}

TEST_F(SavedFolderTest, WhatIsOnATierIsLookedAtAlsoIfAnotherNodeReadsIt) {
  plan::Membership alone;
  options_.persist = true;
  Start(alone, 16 << 20);
  FOREBAY_EXPECT_OK(rig_->StageAll());
  Start(first_, 16 << 20);
  FOREBAY_EXPECT_OK(rig_->StageAll());
  EXPECT_EQ(rig_->dataset().progress().gfs_stats, kFiles);
  EXPECT_EQ(rig_->dataset().progress().gfs_opens, 0U);
  const std::uint32_t changed = FileThatIs(/*own=*/false, first_);
  Touch(changed);
  Start(first_, 16 << 20);
  const Status refused = rig_->StageAll();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(10'000 + changed) + ".jpg"));
}

TEST_F(SavedFolderTest, FilesAreStagedWhileOthersAreStillLookedAt) {
  plan::Membership alone;
  Start(alone);
  FOREBAY_EXPECT_OK(rig_->StageAll());
  Start(alone);
  // One of the last files does not answer.
  rig_->gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kStat, .nth = kFiles - 100});
  rig_->stager().Stage(rig_->dataset());
  while (rig_->dataset().progress().gfs_bytes < kFiles / 2 * kFileBytes) std::this_thread::yield();
  EXPECT_EQ(rig_->dataset().catalog(), nullptr);
  rig_->gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(AwaitPassEnd(rig_->dataset()));
  EXPECT_EQ(rig_->dataset().progress().gfs_bytes, kFiles * kFileBytes) << "no file is read twice";
  EXPECT_EQ(rig_->dataset().progress().gfs_opens, kFiles);
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

TEST_F(SavedFolderTest, AFileThatChangedLeavesNothingOfWhatWasStagedBeforeItWasFound) {
  plan::Membership alone;
  Start(alone);
  FOREBAY_EXPECT_OK(rig_->StageAll());
  Touch(kFiles - 1);
  Start(alone);
  const Status refused = rig_->StageAll();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("12499.jpg"));
  EXPECT_EQ(rig_->cache().stats(tier::TierKind::kRam).extents, 0U);
  FOREBAY_EXPECT_OK(rig_->StageAll(/*rebuild=*/true));
  FOREBAY_EXPECT_OK(rig_->VerifyAll());
}

}  // namespace forebay::stage::saved_catalog_test
