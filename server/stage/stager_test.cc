// The stager reads each byte once and opens each object once, no matter how many readers ask for
// it. Errors name the object, and no waiter waits for ever. The tiers are real; the GFS and the SSD
// fail independently (testing/split_backend.h).
#include "server/stage/stager.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::stage::stager_test {

using io::FaultKind;
using io::IoCall;
using io::testing::CodeOf;
using io::testing::Pattern;
using ::testing::HasSubstr;

constexpr std::uint64_t kFileBytes = 512'000;  // 512 records in 8 extents
constexpr std::uint64_t kExtentBytes = 65'000;
constexpr std::uint64_t kFolderFiles = 300;

class StagerTest : public ::testing::Test {
 protected:
  StagerTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    bytes_ = Pattern(kFileBytes, 1);
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  }

  void Start(const RigOptions& options = {}, bool persist = false) {
    DatasetOptions dataset = RecordDataset();
    dataset.persist = persist;
    FOREBAY_EXPECT_OK(rig_.Start(dataset, options));
  }
  void StartAndStage(const RigOptions& options = {}, bool persist = false) {
    Start(options, persist);
    FOREBAY_EXPECT_OK(rig_.StageAll());
  }

  // A data set that is compressed at staging, of bytes that do not become fewer by that.
  DatasetOptions Incompressible() {
    std::mt19937 random(7);
    std::ranges::generate(bytes_, [&] { return static_cast<std::byte>(random()); });
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
    DatasetOptions dataset = RecordDataset();
    dataset.compression = Compression::kFast;
    return dataset;
  }

  // Writes a folder of small images in several extents; returns their bytes.
  std::uint64_t StartFolder(StageRig& rig) {
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < kFolderFiles; ++i) {
      const std::string path = "/gfs/class" + std::to_string(i % 3) + "/" + std::to_string(i);
      const std::size_t bytes = 1 + static_cast<std::size_t>(i) * 37 % 3000;
      EXPECT_TRUE(memory_.AddFile(path + ".jpg", Pattern(bytes, 2)).has_value());
      total += bytes;
    }
    DatasetOptions folder;
    folder.source.name = "folder";
    folder.source.format = catalog::Format::kImageFolder;
    folder.source.settings.SetTexts("suffixes", {".jpg"});
    folder.source.extent_bytes = 64 << 10;
    FOREBAY_EXPECT_OK(rig.Start(folder, {.readers = 3}));
    return total;
  }

  // Checks that the copies on the tiers equal the objects on the GFS, byte for byte.
  void ExpectTheFilesBytes() {
    FOREBAY_EXPECT_OK(rig_.VerifyAll());
    for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
      const tier::ExtentRef ref = rig_.cache().Find(rig_.dataset().key(ExtentId(i)));
      ASSERT_TRUE(ref) << "extent " << i << " is nowhere";
      if (ref->tier != tier::TierKind::kRam) continue;  // its checksums were just verified
      const catalog::ExtentInfo info = rig_.dataset().catalog()->extent(ExtentId(i));
      EXPECT_EQ(std::memcmp(ref->block.bytes().data(), bytes_.data() + info.object_offset,
                            info.bytes),
                0)
          << "extent " << i;
    }
  }

  // Changes the file while it is open, as another program might.
  void TruncateInPlace(std::uint64_t bytes) {
    auto root = memory_.OpenDirectory("/gfs");
    ASSERT_TRUE(root.has_value());
    auto file = (*root)->Open("data.bin", io::OpenMode::kAppend);
    ASSERT_TRUE(file.has_value());
    FOREBAY_EXPECT_OK((*file)->Truncate(bytes));
  }

  void AwaitFaults(const io::FaultInjector& faults, std::uint64_t count) {
    while (faults.faults_injected() < count) std::this_thread::yield();
  }

  // Pins every resident extent and allocates all free memory, until the result is destroyed.
  struct Hoard {
    std::vector<tier::ExtentRef> refs;
    std::vector<tier::ArenaBlock> blocks;
  };
  Hoard TakeAllMemory() {
    Hoard hoard;
    for (const tier::ExtentKey& key : rig_.cache().Resident(tier::TierKind::kRam)) {
      hoard.refs.push_back(rig_.cache().Find(key));
    }
    while (rig_.arena().largest_free_bytes() > 0) {
      auto block = rig_.arena().Allocate(rig_.arena().largest_free_bytes());
      if (!block.has_value()) break;
      hoard.blocks.push_back(std::move(*block));
    }
    return hoard;
  }

  // Demands extent 3, which is on no tier, and rebuilds the data set while the GFS has read its
  // bytes and not answered yet. The answer comes when the rebuild has taken over and has staged
  // nothing. Returns the outcome of the demand. `changes`: a byte changes before the rebuild.
  Status DemandAcrossARebuild(Stager::Access access, bool changes) {
    constexpr std::uint64_t kBit = (3 * kExtentBytes + 77) * 8;
    Dataset& before = rig_.dataset();
    FOREBAY_EXPECT_OK(rig_.cache().Evict(before.key(ExtentId(3)), std::nullopt));
    const std::uint64_t reads = before.progress().gfs_reads;
    rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
    std::promise<Status> told;
    rig_.stager().Demand(
        before, ExtentId(3), [&](const Status& status) { told.set_value(status); }, access);
    // The first request for the extent is not answered. It was made before the others.
    while (before.progress().gfs_reads == reads) std::this_thread::yield();
    if (changes) {
      FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", kBit));
      bytes_[kBit / 8] ^= std::byte{1} << (kBit % 8);
    }
    Status outcome;
    FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true, [&] {
      rig_.gfs_faults.ReleaseStalls();
      outcome = told.get_future().get();
    }));
    EXPECT_EQ(rig_.gfs_faults.faults_injected(), 1U);
    EXPECT_NE(&rig_.dataset(), &before);
    return outcome;
  }

  io::MemoryBackend memory_;
  std::vector<std::byte> bytes_;
  StageRig rig_{memory_, ""};
};

TEST_F(StagerTest, ReadsEachByteOnceThroughOneOpen) {
  // Many rounds with many readers: the last reader must not open the object again.
  for (int round = 0; round < 40; ++round) {
    Start({.readers = 4});
    rig_.CountGfsReads();
    FOREBAY_EXPECT_OK(rig_.StageAll());
    const DatasetProgress progress = rig_.dataset().progress();
    ASSERT_EQ(progress.gfs_bytes, kFileBytes);
    ASSERT_EQ(progress.total_bytes, kFileBytes);
    ASSERT_EQ(progress.staged_bytes, kFileBytes);
    ASSERT_EQ(progress.gfs_opens, 1u);
    ASSERT_EQ(progress.gfs_reads, rig_.gfs_reads()) << "what is reported is what happened";
    rig_.Stop();
    ASSERT_EQ(memory_.open_file_count(), 0u);
  }
}

TEST_F(StagerTest, HoldsTheFilesBytes) {
  StartAndStage();
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, ClosesItsObjectsOnceStaged) {
  StartAndStage({.readers = 4});
  // The pass ends before the reader that ended it closes its object.
  while (memory_.open_file_count() > 0) std::this_thread::yield();
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

TEST_F(StagerTest, ReadsManySmallObjectsOnceThroughOneOpenEach) {
  const std::uint64_t total = StartFolder(rig_);
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, total);
  EXPECT_EQ(rig_.dataset().progress().gfs_opens, kFolderFiles);
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
  EXPECT_EQ(memory_.open_file_count(), 0u);
}

// Whether an early extent is read before the catalog is complete is a race, which a small folder
// may lose. So these two tests repeat, each time with a new rig, until it was.
TEST_F(StagerTest, FilesAreReadWhileTheirCatalogIsStillBuilt) {
  bool was_early = false;
  for (int attempt = 0; attempt < 200 && !was_early; ++attempt) {
    StageRig rig(memory_, "");
    const std::uint64_t total = StartFolder(rig);
    rig.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
    rig.stager().Stage(rig.dataset());
    AwaitFaults(rig.gfs_faults, 1);
    was_early = rig.dataset().catalog() == nullptr;
    rig.gfs_faults.ReleaseStalls();
    FOREBAY_EXPECT_OK(AwaitPassEnd(rig.dataset()));
    EXPECT_EQ(rig.dataset().progress().gfs_bytes, total);
    EXPECT_EQ(rig.dataset().progress().gfs_opens, kFolderFiles);
    EXPECT_EQ(rig.dataset().progress().staged_bytes, total);
    FOREBAY_EXPECT_OK(rig.VerifyAll());
  }
  EXPECT_TRUE(was_early);
}

TEST_F(StagerTest, WhatFailsBeforeThereIsACatalogIsReadAgainAfterwards) {
  bool was_early = false;
  for (int attempt = 0; attempt < 200 && !was_early; ++attempt) {
    StageRig rig(memory_, "");
    const std::uint64_t total = StartFolder(rig);
    rig.gfs_faults.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead});
    // With a catalog the same fault fails the data set.
    was_early = rig.StageAll().has_value();
    EXPECT_EQ(rig.gfs_faults.faults_injected(), 1u);
    if (!was_early) continue;
    EXPECT_EQ(rig.dataset().progress().staged_bytes, total);
    EXPECT_GT(rig.dataset().progress().gfs_opens, kFolderFiles);
    FOREBAY_EXPECT_OK(rig.VerifyAll());
  }
  EXPECT_TRUE(was_early);
}

TEST_F(StagerTest, SpillsToSsdWhatRamCannotHold) {
  StartAndStage({.ram_bytes = 512 << 10, .reserve_bytes = 256 << 10, .ssd_bytes = 4 << 20});
  EXPECT_GT(rig_.cache().stats(tier::TierKind::kRam).extents, 0u);
  EXPECT_GT(rig_.cache().stats(tier::TierKind::kSsd).extents, 0u);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  EXPECT_EQ(rig_.dataset().bytes_without_home(), 0u);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, ADemandGoesBeforeTheBackground) {
  Start({.readers = 1});
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  rig_.stager().Stage(rig_.dataset());
  AwaitFaults(rig_.gfs_faults, 1);  // extent 0 is being read, so the catalog is known
  std::atomic<std::uint64_t> read_by_then = 0;
  rig_.stager().Demand(rig_.dataset(), ExtentId(6), [&](const Status& status) {
    EXPECT_TRUE(status.has_value());
    read_by_then = rig_.dataset().progress().gfs_bytes;
  });
  rig_.gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(AwaitPassEnd(rig_.dataset()));
  EXPECT_EQ(read_by_then, 2 * kExtentBytes) << "extents 0 and 6, and nothing between";
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
}

TEST_F(StagerTest, AReadersFirstDemandsGoBeforeEverything) {
  Start({.readers = 1});
  std::atomic<std::uint64_t> read_by_then = 0;
  rig_.stager().StageForReader(rig_.dataset());
  // As a stream that waits for the catalog does.
  rig_.dataset().WhenCatalogued([&](const Status& catalogued) {
    EXPECT_TRUE(catalogued.has_value());
    rig_.stager().Demand(rig_.dataset(), ExtentId(6), [&](const Status& status) {
      EXPECT_TRUE(status.has_value());
      read_by_then = rig_.dataset().progress().gfs_bytes;
    });
  });
  FOREBAY_EXPECT_OK(AwaitPassEnd(rig_.dataset()));
  EXPECT_EQ(read_by_then, kExtentBytes) << "extent 6 and nothing else";
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes) << "the rest follows unasked";
}

TEST_F(StagerTest, ConcurrentDemandsReadNoByteTwice) {
  Start({.readers = 2});
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  rig_.stager().Stage(rig_.dataset());
  AwaitFaults(rig_.gfs_faults, 1);
  const std::uint32_t count = rig_.extent_count();
  std::atomic<std::uint32_t> answered = 0;
  constexpr std::uint32_t kThreads = 6;
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint32_t i = 0; i < count; ++i) {
          rig_.stager().Demand(rig_.dataset(), ExtentId((i * (2 * t + 1) + t) % count),
                               [&](const Status& status) {
                                 EXPECT_TRUE(status.has_value());
                                 ++answered;
                               });
        }
      });
    }
  }
  rig_.gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(AwaitPassEnd(rig_.dataset()));
  while (answered < kThreads * count) std::this_thread::yield();
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  EXPECT_EQ(rig_.dataset().progress().gfs_opens, 1u);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, AResidentExtentIsAnsweredFromTheCall) {
  StartAndStage();
  bool is_told = false;
  rig_.stager().Demand(rig_.dataset(), ExtentId(3), [&](const Status& status) {
    is_told = status.has_value();
  });
  EXPECT_TRUE(is_told);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
}

TEST_F(StagerTest, AnEvictedExtentIsReadAgain) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(3)), std::nullopt));
  FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(3)));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes + kExtentBytes);
  EXPECT_EQ(rig_.dataset().progress().staged_bytes, kFileBytes) << "an extent counts once";
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, StagingAgainBringsWhatWasEvicted) {
  StartAndStage();
  for (const std::uint32_t i : {0U, 3U, 7U}) {
    FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(i)), std::nullopt));
  }
  FOREBAY_EXPECT_OK(rig_.StageAll());
  ExpectTheFilesBytes();
  const std::uint64_t read = rig_.dataset().progress().gfs_bytes;
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, read) << "nothing was missing";
}

TEST_F(StagerTest, ARebuildServesTheObjectsAsTheyAreNow) {
  StartAndStage();
  Dataset& before = rig_.dataset();
  bytes_ = Pattern(kFileBytes, 9);
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  ExpectTheFilesBytes();
  EXPECT_NE(rig_.dataset().catalog()->fingerprint(), before.catalog()->fingerprint());
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).extents, rig_.extent_count())
      << "extents of the object as it was before take no room";
  // A reader with the old catalog gets an error, and no bytes of the new data set.
  std::promise<Status> told;
  rig_.stager().Demand(before, ExtentId(2), [&](const Status& status) { told.set_value(status); });
  const Status outcome = told.get_future().get();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(outcome.error().message(), HasSubstr("'data.bin'"));
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

TEST_F(StagerTest, ARebuildOfUnchangedObjectsReadsAllAgainAndKeepsReaders) {
  StartAndStage();
  Dataset& before = rig_.dataset();
  rig_.CountGfsReads();
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  ExpectTheFilesBytes();
  // Readers of the old data set find the same extents, and stage one again that was evicted.
  EXPECT_EQ(before.key(ExtentId(3)), rig_.dataset().key(ExtentId(3)));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(before.key(ExtentId(3)), std::nullopt));
  std::promise<Status> told;
  rig_.stager().Demand(before, ExtentId(3), [&](const Status& status) { told.set_value(status); });
  FOREBAY_EXPECT_OK(told.get_future().get());
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, ManyRebuildsTakeNoRoomTwice) {
  // The data set fits once, and not twice.
  const RigOptions options = {.ram_bytes = 384 << 10, .reserve_bytes = 128 << 10,
                              .ssd_bytes = 512 << 10};
  StartAndStage(options);
  ASSERT_EQ(rig_.dataset().bytes_without_home(), 0U);
  for (std::uint64_t round = 0; round < 8; ++round) {
    if (round % 2 == 0) {
      bytes_ = Pattern(kFileBytes, 10 + round);
      ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
    }
    FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
    EXPECT_EQ(rig_.dataset().bytes_without_home(), 0U) << "round " << round;
    ExpectTheFilesBytes();
  }
}

TEST_F(StagerTest, ARebuildAfterBytesChangedUnderAnUnchangedTimeReadsAllOfThemAgain) {
  StartAndStage();
  constexpr std::uint64_t kBit = (3 * kExtentBytes + 77) * 8;
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", kBit));
  bytes_[kBit / 8] ^= std::byte{1} << (kBit % 8);
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(3)), std::nullopt));
  ASSERT_FALSE(rig_.Demand(ExtentId(3)).has_value());
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, ARebuildThatCannotCatalogueTheObjectsLeavesTheDataSetAsItWas) {
  StartAndStage();
  Dataset& before = rig_.dataset();
  const plan::TierSpace left = rig_.stager().space_left();
  rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = std::nullopt, .is_persistent = true});
  const Status refused = rig_.StageAll(/*rebuild=*/true);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("not rebuilt, and served as it was"));
  EXPECT_EQ(&rig_.dataset(), &before);
  EXPECT_FALSE(before.is_replaced());
  ExpectTheFilesBytes();  // all of it is still there, and the GFS still fails
  EXPECT_EQ(rig_.stager().space_left().ram_bytes, left.ram_bytes);
  rig_.gfs_faults.Disarm();
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  EXPECT_NE(&rig_.dataset(), &before);
  EXPECT_EQ(rig_.stager().space_left().ram_bytes, left.ram_bytes);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, ARebuildTrustsNoCopyThatReadersBroughtAfterOneThatFailed) {
  StartAndStage();
  Dataset& before = rig_.dataset();
  rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = std::nullopt, .is_persistent = true});
  ASSERT_FALSE(rig_.StageAll(/*rebuild=*/true).has_value());
  rig_.gfs_faults.Disarm();
  std::promise<Status> told;
  rig_.stager().Demand(before, ExtentId(3), [&](const Status& status) { told.set_value(status); });
  FOREBAY_EXPECT_OK(told.get_future().get());
  constexpr std::uint64_t kBit = (3 * kExtentBytes + 77) * 8;
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", kBit));
  bytes_[kBit / 8] ^= std::byte{1} << (kBit % 8);
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  ExpectTheFilesBytes();
}

// The old bytes have the same key as the new ones, so readers of the new data set would get them.
TEST_F(StagerTest, BytesThatWereReadBeforeARebuildAreNotServedAfterIt) {
  StartAndStage({.readers = 4});
  const Status outcome = DemandAcrossARebuild(Stager::Access::kOnTier, /*changes=*/true);
  ASSERT_FALSE(outcome.has_value()) << "the reader of before has an object that has changed";
  EXPECT_THAT(outcome.error().message(), HasSubstr("changed since first read"));
  ExpectTheFilesBytes();
  EXPECT_EQ(rig_.dataset().first_reads().mismatches(), 0U);
}

TEST_F(StagerTest, ChecksumsThatWereReadBeforeARebuildAreNotUsedAfterIt) {
  StartAndStage({.readers = 4});
  EXPECT_FALSE(DemandAcrossARebuild(Stager::Access::kPieces, /*changes=*/true).has_value());
  EXPECT_EQ(rig_.stager().pieces().Find(rig_.dataset().key(ExtentId(3))), nullptr);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, AReadThatARebuildOvertakesIsRepeatedForItsReader) {
  StartAndStage({.readers = 4});
  Dataset& before = rig_.dataset();
  FOREBAY_EXPECT_OK(DemandAcrossARebuild(Stager::Access::kOnTier, /*changes=*/false));
  EXPECT_EQ(before.progress().gfs_bytes, kFileBytes + 2 * kExtentBytes);
  EXPECT_FALSE(before.is_outdated());
  ExpectTheFilesBytes();
}

// Extents that readers of the old data set stage after a rebuild are first reads of the new one
// too.
TEST_F(StagerTest, WhatReadersOfBeforeARebuildBringIsHeldAgainstLaterReads) {
  StartAndStage();
  Dataset& before = rig_.dataset();
  // The rebuild takes over, and then stages nothing.
  rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead, .is_persistent = true});
  ASSERT_FALSE(rig_.StageAll(/*rebuild=*/true).has_value());
  ASSERT_NE(&rig_.dataset(), &before);
  rig_.gfs_faults.Disarm();
  std::promise<Status> told;
  rig_.stager().Demand(before, ExtentId(3), [&](const Status& status) { told.set_value(status); });
  FOREBAY_EXPECT_OK(told.get_future().get());
  FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(3)));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(3)), std::nullopt));
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", (3 * kExtentBytes + 77) * 8));
  const Status refused = rig_.Demand(ExtentId(3));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("changed since first read"));
}

TEST_F(StagerTest, BytesThatChangedUnderAnUnchangedTimeAreRefusedByName) {
  StartAndStage();
  constexpr std::uint64_t kBit = (3 * kExtentBytes + 77) * 8;
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", kBit));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(3)), std::nullopt));
  const Status refused = rig_.Demand(ExtentId(3));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(refused.error().message(), HasSubstr("object 'data.bin', extent 3"));
  EXPECT_THAT(refused.error().message(), HasSubstr("changed since first read"));
  EXPECT_EQ(rig_.dataset().first_reads().mismatches(), 2U) << "the second past the caches";
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", kBit));
  FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(3)));
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, StagingTwiceChangesNothing) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
}

// --- restarts -----------------------------------------------------------------------------

TEST_F(StagerTest, ARestartFindsItsExtentsOnSsdAndReadsNothing) {
  const RigOptions options = {.ssd_bytes = 4 << 20};
  StartAndStage(options, /*persist=*/true);
  rig_.Stop();
  rig_.CountGfsReads();
  StartAndStage(options, /*persist=*/true);
  EXPECT_EQ(rig_.gfs_reads(), 0u);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, 0u);
  EXPECT_EQ(rig_.dataset().progress().staged_bytes, kFileBytes);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).extents, rig_.extent_count())
      << "what belongs in RAM is brought up";
  ExpectTheFilesBytes();
}

// Without a state directory, only the copy tells what was read first.
TEST_F(StagerTest, ACompressedCopyOfAnEarlierDaemonIsTheFirstRead) {
  const RigOptions options = {.ssd_bytes = 4 << 20};
  DatasetOptions dataset = RecordDataset();
  dataset.persist = true;
  dataset.compression = Compression::kFast;
  FOREBAY_EXPECT_OK(rig_.Start(dataset, options));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  ASSERT_NE(rig_.dataset().form(), nullptr);
  rig_.Stop();
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", (3 * kExtentBytes + 77) * 8));
  FOREBAY_EXPECT_OK(rig_.Start(dataset, options));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, 0U) << "all of it was there";
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(3)), std::nullopt));
  const Status refused = rig_.Demand(ExtentId(3));
  ASSERT_EQ(CodeOf(refused), ErrorCode::kDataLoss);
  EXPECT_THAT(refused.error().message(), HasSubstr("extent 3: changed since first read"));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(4)), std::nullopt));
  FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(4)));
}

// Next uses are estimates: a batch may wait for an extent that seems to be needed last. A data set
// that is compressed cannot be read in pieces instead.
TEST_F(StagerTest, ADemandThatSeemsToBeNeededLaterThanAllOthersIsMetAllTheSame) {
  std::atomic<std::uint32_t> demanded = 0;
  FOREBAY_EXPECT_OK(rig_.Start(
      Incompressible(),
      {.ram_bytes = 384 << 10,
       .reserve_bytes = 256 << 10,
       .next_use = [&](const tier::ExtentKey& key, std::uint64_t) -> std::uint64_t {
         return key == rig_.dataset().key(ExtentId(demanded)) ? 5 : 0;
       }}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  for (demanded = 0; demanded < rig_.extent_count(); ++demanded) {
    FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(demanded)));
  }
  EXPECT_GT(rig_.cache().stats(tier::TierKind::kRam).evictions, 0U) << "it all fitted";
}

// A batch ahead of need leaves memory to what is needed sooner; one that waits for nothing else
// does not.
TEST_F(StagerTest, OnlyAnUrgentDemandTakesThePlaceOfWhatIsNeededSooner) {
  FOREBAY_EXPECT_OK(rig_.Start(
      Incompressible(),
      {.ram_bytes = 384 << 10,
       .reserve_bytes = 256 << 10,
       .next_use = [&](const tier::ExtentKey& key, std::uint64_t) -> std::uint64_t {
         return rig_.cache().Find(key) == nullptr ? 5 : 0;
       }}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const auto demand_of = [&](std::uint32_t extent, Urgency urgency) {
    std::promise<Status> outcome;
    rig_.stager().Demand(rig_.dataset(), ExtentId(extent),
                         [&](const Status& status) { outcome.set_value(status); },
                         Access::kOnTier, urgency);
    return outcome.get_future().get();
  };
  // Fills memory, and evicts the first ones again.
  for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
    FOREBAY_EXPECT_OK(demand_of(i, Urgency::kNow));
  }
  std::uint32_t missing = 0;
  while (rig_.cache().Find(rig_.dataset().key(ExtentId(missing))) != nullptr) ++missing;
  ASSERT_LT(missing, rig_.extent_count());
  const auto demand = [&](Urgency urgency) { return demand_of(missing, urgency); };
  const auto evictions = [&] { return rig_.cache().stats(tier::TierKind::kRam).evictions; };
  const std::uint64_t before = evictions();
  EXPECT_EQ(CodeOf(demand(Urgency::kAhead)), ErrorCode::kResourceExhausted);
  EXPECT_EQ(evictions(), before);
  FOREBAY_EXPECT_OK(demand(Urgency::kNow));
  EXPECT_GT(evictions(), before);
}

// Another node asks for the extent, and cannot use parts of it. Whoever can read in pieces leaves
// the memory to what is needed sooner.
TEST_F(StagerTest, ADemandForAWholeExtentIsMetAlthoughOthersAreNeededSooner) {
  std::atomic<bool> is_full = false;
  Start({.ram_bytes = 384 << 10,
         .next_use = [&](const tier::ExtentKey& key, std::uint64_t) -> std::uint64_t {
           return is_full && rig_.cache().Find(key) == nullptr ? 5 : 0;
         }});
  FOREBAY_EXPECT_OK(rig_.StageAll());
  // Fills memory, and evicts some again.
  for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
    FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(i)));
  }
  std::uint32_t missing = 0;
  while (rig_.cache().Find(rig_.dataset().key(ExtentId(missing))) != nullptr) ++missing;
  ASSERT_LT(missing, rig_.extent_count());
  is_full = true;
  const auto demand = [&](Access access) {
    std::promise<Status> outcome;
    rig_.stager().Demand(rig_.dataset(), ExtentId(missing),
                         [&](const Status& status) { outcome.set_value(status); }, access);
    return outcome.get_future().get();
  };
  EXPECT_EQ(CodeOf(demand(Access::kOnTier)), ErrorCode::kResourceExhausted);
  FOREBAY_EXPECT_OK(demand(Access::kWhole));
  EXPECT_NE(rig_.cache().Find(rig_.dataset().key(ExtentId(missing))), nullptr);
}

TEST_F(StagerTest, WhatIsOnSsdAfterARestartTakesNoRoomTwice) {
  // The SSD holds the data set once, not twice, so no extent may be without a home.
  const RigOptions options = {.ram_bytes = 384 << 10, .reserve_bytes = 256 << 10,
                              .ssd_bytes = 704 << 10};
  StartAndStage(options);
  ASSERT_EQ(rig_.dataset().bytes_without_home(), 0u);
  const std::uint64_t on_ssd = rig_.cache().stats(tier::TierKind::kSsd).extents;
  ASSERT_GT(on_ssd, 4u);
  rig_.Stop();
  StartAndStage(options);
  EXPECT_EQ(rig_.dataset().bytes_without_home(), 0u);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kSsd).extents, on_ssd);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, (rig_.extent_count() - on_ssd) * kExtentBytes);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, ADamagedSsdCopyIsReadAnewInsteadOfPromoted) {
  const RigOptions options = {.ssd_bytes = 4 << 20};
  StartAndStage(options, /*persist=*/true);
  const std::string segment = tier::SegmentName(rig_.dataset().key(ExtentId(2)));
  rig_.Stop();
  ASSERT_TRUE(memory_.FlipBit("/ssd/" + segment, 8 * 30'000 + 5).has_value());
  StartAndStage(options, /*persist=*/true);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kExtentBytes) << "the damaged one, alone";
  EXPECT_EQ(rig_.dataset().progress().staged_bytes, kFileBytes);
  ExpectTheFilesBytes();
  // The new copy took the place of the damaged one.
  rig_.Stop();
  StartAndStage(options, /*persist=*/true);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, 0u);
}

TEST_F(StagerTest, AChangedObjectIsNotServedFromTheOldCopyOnSsd) {
  const RigOptions options = {.ssd_bytes = 4 << 20};
  StartAndStage(options, /*persist=*/true);
  rig_.Stop();
  bytes_ = Pattern(kFileBytes, 99);
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  StartAndStage(options, /*persist=*/true);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, StaleExtentsOnSsdGiveTheirRoomBack) {
  // The SSD holds the data set once, not twice.
  const RigOptions options = {.ram_bytes = 384 << 10, .reserve_bytes = 256 << 10,
                              .ssd_bytes = 704 << 10};
  StartAndStage(options);
  for (const bool is_rebuild : {false, true}) {
    rig_.Stop();
    bytes_ = Pattern(kFileBytes, is_rebuild ? 98 : 99);
    ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
    Start(options);
    FOREBAY_EXPECT_OK(rig_.StageAll(is_rebuild));
    EXPECT_EQ(rig_.dataset().bytes_without_home(), 0U) << (is_rebuild ? "rebuilt" : "staged");
    ExpectTheFilesBytes();
  }
}

// --- the SSD fails ------------------------------------------------------------------------

TEST_F(StagerTest, AFullSsdSendsExtentsToRam) {
  Start({.ram_bytes = 1 << 20, .reserve_bytes = 800 << 10, .ssd_bytes = 4 << 20});
  rig_.ssd_faults.Arm({.kind = FaultKind::kEnospc, .call = std::nullopt, .is_persistent = true});
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_GT(rig_.ssd_faults.faults_injected(), 0u);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kSsd).extents, 0u);
  EXPECT_FALSE(rig_.cache().stats(tier::TierKind::kSsd).retired) << "full is not broken";
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, AFailingSsdIsRetiredAndExtentsGoToRam) {
  Start({.ram_bytes = 1 << 20, .reserve_bytes = 800 << 10, .ssd_bytes = 4 << 20});
  rig_.ssd_faults.Arm({.kind = FaultKind::kEio, .call = std::nullopt, .is_persistent = true});
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_GE(rig_.ssd_faults.faults_injected(), 3u);
  EXPECT_TRUE(rig_.cache().stats(tier::TierKind::kSsd).retired);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes);
  ExpectTheFilesBytes();
}

// --- memory is short ----------------------------------------------------------------------

TEST_F(StagerTest, ShortMemoryIsWaitedForThenReported) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(0)), std::nullopt));
  {
    const Hoard hoard = TakeAllMemory();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(CodeOf(rig_.Demand(ExtentId(0))), ErrorCode::kResourceExhausted);
    const auto waited = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(waited, std::chrono::milliseconds(kMemoryWaitBeforePiecesMs * 4 / 5));
    EXPECT_LT(waited, std::chrono::seconds(60));
  }
  FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(0)));
  ExpectTheFilesBytes();
}

// A pass skips an extent that a demand is loading, and has nobody else that would load it.
TEST_F(StagerTest, AnExtentForWhichADemandFoundNoMemoryIsLoadedLater) {
  StartAndStage();
  const tier::ExtentKey& key = rig_.dataset().key(ExtentId(0));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(key, std::nullopt));
  {
    const Hoard hoard = TakeAllMemory();
    EXPECT_EQ(CodeOf(rig_.Demand(ExtentId(0))), ErrorCode::kResourceExhausted);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!rig_.cache().Holds(key) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(rig_.cache().Holds(key));
}

// A load waits as long as the most patient of those who wait for it.
TEST_F(StagerTest, WhoNeedsTheWholeExtentMayJoinALoadForOneWhoDoesNot) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(0)), std::nullopt));
  const Hoard hoard = TakeAllMemory();
  const auto begin = std::chrono::steady_clock::now();
  std::promise<Status> outcomes[2];
  for (const int i : {0, 1}) {
    rig_.stager().Demand(rig_.dataset(), ExtentId(0),
                         [&, i](const Status& status) { outcomes[i].set_value(status); },
                         i == 0 ? Access::kOnTier : Access::kWhole);
  }
  for (std::promise<Status>& outcome : outcomes) {
    EXPECT_EQ(CodeOf(outcome.get_future().get()), ErrorCode::kResourceExhausted);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(limits::kShortMemoryWaitMs));
}

// One extent at home leaves no space for the images of others, which have to pass through RAM.
TEST_F(StagerTest, ExtentsPassThroughATierThatHomesHaveFilled) {
  Start({.ram_bytes = 104 << 10, .reserve_bytes = 30 << 10, .ssd_bytes = 4 << 20});
  FOREBAY_EXPECT_OK(rig_.StageAll());
  for (std::uint32_t i = 0; i < rig_.dataset().catalog()->extent_count(); ++i) {
    EXPECT_NE(rig_.cache().Find(rig_.dataset().key(ExtentId(i))), nullptr) << i;
  }
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, kFileBytes) << "what was evicted went to SSD";
  ExpectTheFilesBytes();
}

TEST_F(StagerTest, MemoryThatComesFreeInTimeIsUsed) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(0)), std::nullopt));
  // On a busy machine this thread may give the memory back too late.
  bool has_come = false;
  for (int tries = 0; tries < 50 && !has_come; ++tries) {
    auto hoard = std::make_unique<Hoard>(TakeAllMemory());
    std::promise<bool> outcome;
    rig_.stager().Demand(rig_.dataset(), ExtentId(0), [&](const Status& status) {
      outcome.set_value(status.has_value());
    });
    hoard.reset();
    has_come = outcome.get_future().get();
  }
  EXPECT_TRUE(has_come);
}

TEST_F(StagerTest, APromotionWithoutMemoryKeepsTheCopyOnSsd) {
  bytes_.resize(60'000);  // one extent
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  const RigOptions options = {.ssd_bytes = 4 << 20};
  StartAndStage(options, /*persist=*/true);
  rig_.Stop();
  Start(options, /*persist=*/true);
  const Hoard hoard = TakeAllMemory();
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, 0u);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kSsd).extents, 1u);
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

// --- the GFS fails ------------------------------------------------------------------------

TEST_F(StagerTest, AChangedSizeNamesTheObject) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(1)), std::nullopt));
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes + 1)).has_value());
  const Status demanded = rig_.Demand(ExtentId(1));
  ASSERT_EQ(CodeOf(demanded), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(demanded.error().message(), HasSubstr("'data.bin'"));
  EXPECT_THAT(demanded.error().message(), HasSubstr("size"));
  EXPECT_THAT(demanded.error().message(), HasSubstr("--rebuild"));
}

TEST_F(StagerTest, AChangedModificationTimeNamesTheObject) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(1)), std::nullopt));
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  const Status demanded = rig_.Demand(ExtentId(1));
  ASSERT_EQ(CodeOf(demanded), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(demanded.error().message(), HasSubstr("'data.bin'"));
  EXPECT_THAT(demanded.error().message(), HasSubstr("modification time"));
}

TEST_F(StagerTest, ADeletedObjectIsNamed) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(1)), std::nullopt));
  auto root = memory_.OpenDirectory("/gfs");
  ASSERT_TRUE(root.has_value());
  FOREBAY_EXPECT_OK((*root)->Unlink("data.bin"));
  const Status demanded = rig_.Demand(ExtentId(1));
  ASSERT_EQ(CodeOf(demanded), ErrorCode::kNotFound);
  EXPECT_THAT(demanded.error().message(), HasSubstr("'data.bin'"));
}

TEST_F(StagerTest, AnObjectTruncatedWhileItIsReadFailsTheDataSetByName) {
  Start({.readers = 1});
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  rig_.stager().Stage(rig_.dataset());
  AwaitFaults(rig_.gfs_faults, 1);
  TruncateInPlace(kExtentBytes / 2);
  rig_.gfs_faults.ReleaseStalls();
  const Status staged = AwaitPassEnd(rig_.dataset());
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("'data.bin'"));
  // The error is typed, and its message says how the object has changed.
  EXPECT_THAT(rig_.dataset().progress().error,
              ::testing::AnyOf(HasSubstr("DATA_LOSS"), HasSubstr("FAILED_PRECONDITION")));
}

TEST_F(StagerTest, EveryGfsErrorFailsTheDataSetAndStagingAgainMendsIt) {
  // RAM for one copy: the space that a failed pass has reserved must not be reserved again.
  const RigOptions options = {.ram_bytes = 640 << 10};
  for (const FaultKind kind : {FaultKind::kEio, FaultKind::kInterrupted, FaultKind::kShort}) {
    for (const std::uint64_t nth : {1U, 7U, 31U}) {
      Start(options);
      const std::uint64_t before = rig_.gfs_faults.faults_injected();
      rig_.gfs_faults.Arm({.kind = kind, .call = IoCall::kRead, .nth = nth});
      const Status staged = rig_.StageAll();
      ASSERT_EQ(rig_.gfs_faults.faults_injected(), before + 1);
      ASSERT_FALSE(staged.has_value());
      EXPECT_THAT(staged.error().message(), HasSubstr("'data.bin'"));
      EXPECT_EQ(rig_.dataset().progress().state, DatasetState::kFailed);
      FOREBAY_EXPECT_OK(rig_.StageAll());
      EXPECT_EQ(rig_.dataset().progress().error, "");
      EXPECT_EQ(rig_.dataset().bytes_without_home(), 0u);
      EXPECT_EQ(rig_.dataset().progress().staged_bytes, kFileBytes);
      EXPECT_LT(rig_.dataset().progress().gfs_bytes, kFileBytes + kExtentBytes)
          << "only what failed is read again";
      ExpectTheFilesBytes();
      rig_.Stop();
      EXPECT_EQ(memory_.open_file_count(), 0u);
    }
  }
}

TEST_F(StagerTest, CataloguingThatFailsTellsWhoWaits) {
  Start();
  rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = std::nullopt, .is_persistent = true});
  std::atomic<int> told = 0;
  rig_.dataset().WhenCatalogued([&](const Status& status) {
    EXPECT_FALSE(status.has_value());
    ++told;
  });
  EXPECT_FALSE(rig_.StageAll().has_value());
  EXPECT_GT(rig_.gfs_faults.faults_injected(), 0u);
  rig_.gfs_faults.Disarm();
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(told, 1);
  ExpectTheFilesBytes();
}

// --- the end ------------------------------------------------------------------------------

TEST_F(StagerTest, ShutdownCallsEveryWaiterOnce) {
  for (int round = 0; round < 20; ++round) {
    Start({.readers = 1});
    rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
    const std::uint64_t before = rig_.gfs_faults.faults_injected();
    rig_.stager().Stage(rig_.dataset());
    AwaitFaults(rig_.gfs_faults, before + 1);
    // One reader: this second data set waits for its turn to be catalogued.
    Dataset second(RecordDataset(500), rig_.backend(),
                   io::testing::Take(rig_.backend().OpenDirectory("/gfs")));
    rig_.stager().Stage(second);
    std::vector<std::atomic<int>> told(rig_.extent_count() + 1);
    for (std::uint32_t i = 0; i < rig_.extent_count(); ++i) {
      rig_.stager().Demand(rig_.dataset(), ExtentId(i), [&told, i](const Status& status) {
        EXPECT_TRUE(status.has_value() || CodeOf(status) == ErrorCode::kCancelled);
        ++told[i];
      });
    }
    second.WhenCatalogued([&told](const Status&) { ++told.back(); });
    {
      std::jthread release([this] { rig_.gfs_faults.ReleaseStalls(); });
      rig_.Stop();
    }
    for (const std::atomic<int>& count : told) EXPECT_EQ(count, 1);
    EXPECT_EQ(memory_.open_file_count(), 0u);
  }
}

TEST_F(StagerTest, RefusesOptionsOutOfRangeByName) {
  const auto start = [this](const RigOptions& options) {
    const Status started = rig_.Start(RecordDataset(), options);
    return started.has_value() ? std::string() : started.error().ToString();
  };
  EXPECT_THAT(start({.readers = 0}), HasSubstr("stage.readers"));
  EXPECT_THAT(start({.readers = 65}), HasSubstr("stage.readers"));
  EXPECT_THAT(start({.request_bytes = 4095}), HasSubstr("stage.request must"));
  EXPECT_THAT(start({.request_bytes = limits::kIoRequestBytesMax + 1}),
              HasSubstr("stage.request must"));
}

}  // namespace forebay::stage::stager_test
