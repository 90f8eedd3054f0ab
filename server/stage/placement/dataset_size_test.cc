// The size of a data set is found without reading its samples, and equals what staging takes later.
// Where it cannot be known, it is an upper bound.
#include "server/stage/placement/dataset_size.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "server/catalog/testing/tar_text.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/placement/bounded_directory.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage {
namespace {

using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;

std::uint64_t RamBytes(const DatasetSize& size) {
  std::uint64_t bytes = 0;
  for (const plan::Footprint& extent : size.extents) bytes += extent.ram_bytes;
  return bytes;
}
std::uint64_t SsdBytes(const DatasetSize& size) {
  std::uint64_t bytes = 0;
  for (const plan::Footprint& extent : size.extents) bytes += extent.ssd_bytes;
  return bytes;
}

TEST(DatasetSizeTest, OfRecordsItIsWhatTheStagerPlansAndNoSampleIsRead) {
  io::MemoryBackend memory;
  ASSERT_TRUE(memory.AddFile("/gfs/data.bin", Pattern(4 * 65'000)).has_value());
  StageRig rig(memory, "");
  ASSERT_TRUE(rig.Start(RecordDataset()).has_value());
  rig.CountGfsReads();
  const DatasetSize size =
      Take(SizeOf(rig.backend(), rig.dataset().root(), rig.dataset().options(), ""));
  EXPECT_EQ(rig.gfs_reads(), 0U);
  EXPECT_FALSE(size.is_at_most);
  ASSERT_TRUE(rig.StageAll().has_value());
  EXPECT_EQ(size.bytes, rig.dataset().catalog()->total_bytes());
  ASSERT_EQ(size.extents.size(), rig.extent_count());
  for (std::uint32_t i = 0; i < rig.extent_count(); ++i) {
    const ExtentId extent(i);
    EXPECT_EQ(size.image_bytes[i], rig.dataset().catalog()->extent(extent).bytes);
    const plan::Footprint planned =
        rig.dataset().FootprintOf(extent, rig.dataset().PlannedBytes(extent));
    EXPECT_EQ(size.extents[i].ram_bytes, planned.ram_bytes);
    EXPECT_EQ(size.extents[i].ssd_bytes, planned.ssd_bytes);
  }
}

TEST(DatasetSizeTest, OfCompressedRecordsItIsWhatTheyTakeAtMost) {
  io::MemoryBackend memory;
  ASSERT_TRUE(memory.AddFile("/gfs/data.bin", Pattern(4 * 65'000)).has_value());
  const auto root = Take(memory.OpenDirectory("/gfs"));
  DatasetOptions options = RecordDataset();
  options.compression = Compression::kFast;
  const DatasetSize size = Take(SizeOf(memory, *root, options, ""));
  EXPECT_TRUE(size.is_compressed);
  EXPECT_EQ(size.bytes, 4 * 65'000U);
  EXPECT_GT(RamBytes(size), size.bytes);
}

// Shards of many sizes of samples, so that extents end far before their size, and of a sample that
// spans extents.
TEST(DatasetSizeTest, OfShardsItIsABoundThatTheirExtentsKeep) {
  constexpr std::uint64_t kExtentBytes = 64 << 10;
  std::uint64_t state = 1;
  for (int round = 0; round < 20; ++round) {
    io::MemoryBackend memory;
    for (const char* shard : {"a", "b"}) {
      std::string text;
      for (int i = 0; i < 40; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const std::uint64_t bytes = (state >> 33) % (i == 7 ? 5 * kExtentBytes : kExtentBytes);
        text += catalog::TarFileText(std::to_string(i) + ".bin", std::string(bytes, 'x'));
      }
      text += catalog::TarEndText();
      const std::string path = std::string("/gfs/") + shard + ".tar";
      ASSERT_TRUE(memory.AddFile(path, std::as_bytes(std::span(text))).has_value());
    }
    DatasetOptions options;
    options.source.name = "shards";
    options.source.format = catalog::Format::kTar;
    options.source.extent_bytes = kExtentBytes;
    StageRig rig(memory, "");
    ASSERT_TRUE(rig.Start(options, {.ram_bytes = 32 << 20}).has_value());
    rig.CountGfsReads();
    const DatasetSize size =
        Take(SizeOf(rig.backend(), rig.dataset().root(), rig.dataset().options(), ""));
    EXPECT_EQ(rig.gfs_reads(), 0U);
    EXPECT_TRUE(size.is_at_most);
    EXPECT_EQ(size.objects, 2U);
    ASSERT_TRUE(rig.StageAll().has_value());
    plan::Footprint taken;
    for (std::uint32_t i = 0; i < rig.extent_count(); ++i) {
      const ExtentId extent(i);
      const plan::Footprint one =
          rig.dataset().FootprintOf(extent, rig.dataset().PlannedBytes(extent));
      taken.ram_bytes += one.ram_bytes;
      taken.ssd_bytes += one.ssd_bytes;
    }
    EXPECT_GE(size.bytes, rig.dataset().catalog()->total_bytes());
    EXPECT_GE(RamBytes(size), taken.ram_bytes) << "round " << round;
    EXPECT_GE(SsdBytes(size), taken.ssd_bytes) << "round " << round;
    EXPECT_LT(RamBytes(size), size.bytes + size.bytes / 5 + 3 * kExtentBytes);
  }
}

TEST(DatasetSizeTest, ErrorsAreThoseOfCataloguing) {
  io::MemoryBackend memory;
  ASSERT_TRUE(memory.AddDirectory("/gfs").has_value());
  const auto root = Take(memory.OpenDirectory("/gfs"));
  EXPECT_EQ(CodeOf(SizeOf(memory, *root, RecordDataset(), "")), ErrorCode::kNotFound);
}

TEST(BoundedDirectoryTest, LooksUntilTheMomentAndChangesNothing) {
  io::MemoryBackend memory;
  ASSERT_TRUE(memory.AddFile("/gfs/x", Pattern(10)).has_value());
  io::ManualClock clock;
  BoundedDirectory bounded(Take(memory.OpenDirectory("/gfs")), clock, 5);
  EXPECT_EQ(Take(bounded.Stat("x")).bytes, 10U);
  EXPECT_EQ(Take(bounded.List("")).size(), 1U);
  EXPECT_TRUE(bounded.Open("x", io::OpenMode::kRead).has_value());
  EXPECT_EQ(CodeOf(bounded.Open("y", io::OpenMode::kCreate)), ErrorCode::kUnimplemented);
  EXPECT_EQ(CodeOf(bounded.Unlink("x")), ErrorCode::kUnimplemented);
  EXPECT_EQ(bounded.stats(), 1U);
  clock.AdvanceNs(5);
  EXPECT_EQ(CodeOf(bounded.Stat("x")), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(CodeOf(bounded.List("")), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(CodeOf(bounded.Open("x", io::OpenMode::kRead)), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(bounded.stats(), 1U) << "nothing was looked at any more";
}

}  // namespace
}  // namespace forebay::stage
