// Data sets of packs on their way to the tiers: pieces are chunks, not samples.
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compress/encode/testing/pack_test_model.h"
#include "server/catalog/pack/pack_table.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"
#include "server/tier/scrubber.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::stage {
namespace {

using ::testing::HasSubstr;

DatasetOptions PackDataset() {
  DatasetOptions dataset;
  dataset.source.name = "packs";
  dataset.source.extent_bytes = 8 << 10;
  return dataset;
}

class PackStagingTest : public ::testing::Test {
 protected:
  PackStagingTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    const compress::TestFolder folder;
    for (const char* name : {"a.pack", "b.pack"}) {
      packs_[name] = compress::WritePack(compress::MakeModel(name[0] == 'a' ? 40 : 25, 1), folder);
      EXPECT_TRUE(memory_.AddFile(std::string("/gfs/") + name, packs_[name]).has_value());
    }
  }

  io::MemoryBackend memory_;
  std::map<std::string, std::vector<std::byte>> packs_;
  StageRig rig_{memory_, ""};
};

TEST_F(PackStagingTest, StagesTheFilesBytesWithAChecksumPerChunk) {
  FOREBAY_EXPECT_OK(rig_.Start(PackDataset()));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const auto catalog = rig_.dataset().catalog();
  ASSERT_NE(catalog->packs(), nullptr);
  EXPECT_EQ(catalog->sample_count(), 65U);
  ASSERT_GT(catalog->extent_count(), 4U);
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
  std::uint64_t pieces = 0;
  for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
    const catalog::ExtentInfo info = catalog->extent(ExtentId(i));
    const tier::ExtentRef ref = rig_.cache().Find(rig_.dataset().key(ExtentId(i)));
    ASSERT_TRUE(ref && ref->tier == tier::TierKind::kRam) << "extent " << i;
    const auto& pack = packs_.at(std::string(catalog->object(info.first_object).path));
    EXPECT_EQ(std::memcmp(ref->block.bytes().data(), pack.data() + info.object_offset,
                          info.bytes),
              0);
    pieces += ref->sums().pieces.size();
  }
  EXPECT_EQ(pieces, catalog->packs()->chunk_count());
  EXPECT_NE(pieces, catalog->sample_count()) << "chunks and samples cannot be told apart";
}

TEST_F(PackStagingTest, ScrubbingNamesTheChunkThatIsDamaged) {
  FOREBAY_EXPECT_OK(rig_.Start(PackDataset(), {.ram_bytes = 64 << 10, .reserve_bytes = 48 << 10,
                                               .ssd_bytes = 8 << 20}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const auto catalog = rig_.dataset().catalog();
  const ExtentId extent(catalog->extent_count() - 1);
  const tier::ExtentRef ref = rig_.cache().Find(rig_.dataset().key(extent));
  ASSERT_TRUE(ref && ref->tier == tier::TierKind::kSsd);
  std::vector<catalog::Range> pieces;
  FOREBAY_EXPECT_OK(catalog->Pieces(extent, pieces));
  ASSERT_GT(pieces.size(), 2U);
  io::SteadyClock clock;
  auto scrubber = tier::Scrubber::Create(
      rig_.cache(), clock,
      [&](const tier::ExtentKey& key, std::vector<catalog::Range>& ranges) {
        return catalog->Pieces(key.extent, ranges);
      },
      {});
  ASSERT_TRUE(scrubber.has_value());
  auto queue = rig_.backend().CreateQueue({.depth = 2});
  FOREBAY_EXPECT_OK(scrubber->ScrubExtent(ref, **queue));
  ASSERT_TRUE(memory_.FlipBit("/ssd/" + tier::SegmentName(ref->key),
                              (pieces[2].offset + 50) * 8ULL).has_value());
  const Status found = scrubber->ScrubExtent(ref, **queue);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(found.error().message(), HasSubstr("piece 2 ("));
}

TEST_F(PackStagingTest, SavedCatalogIsFoundAgain) {
  const io::testing::TempFolder folder;
  for (const char* name : {"gfs", "ssd", "state"}) {
    std::filesystem::create_directory(folder / name);
  }
  for (const auto& [name, bytes] : packs_) {
    compress::WriteFile(folder / ("gfs/" + name), bytes);
  }
  auto backend = io::ThreadBackend::Create();
  ASSERT_TRUE(backend.has_value());
  StageRig rig(**backend, folder.path());
  FOREBAY_EXPECT_OK(rig.Start(PackDataset(), {.saves_catalogs = true}));
  FOREBAY_EXPECT_OK(rig.StageAll());
  const std::uint64_t fingerprint = rig.dataset().catalog()->fingerprint();
  const std::uint64_t gfs_reads = rig.dataset().progress().gfs_reads;
  EXPECT_FALSE(std::filesystem::is_empty(folder / "state"));
  rig.Stop();
  FOREBAY_EXPECT_OK(rig.Start(PackDataset(), {.saves_catalogs = true}));
  rig.CountGfsReads();
  FOREBAY_EXPECT_OK(rig.StageAll());
  EXPECT_EQ(rig.dataset().catalog()->fingerprint(), fingerprint);
  EXPECT_EQ(rig.gfs_reads(), gfs_reads) << "only extents are read, no index";
  FOREBAY_EXPECT_OK(rig.VerifyAll());
}

}  // namespace
}  // namespace forebay::stage
