// CutPack: sizes of extents, cuts where all fields have reached one sample, overlaps.
#include "server/catalog/pack/pack_cut.h"

#include <gmock/gmock.h>

#include "proto/contract/limits.h"

namespace forebay::catalog {
namespace {

using compress::ChunkEntry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two fields without tiles.
compress::PackSchema TwoFields() {
  compress::PackSchema schema;
  schema.fields.resize(2);
  for (compress::PackField& field : schema.fields) field.samples_per_chunk = 65'536;
  return schema;
}

ChunkEntry Chunk(std::uint32_t field, std::uint64_t first, std::uint32_t count,
                 std::uint64_t offset, std::uint64_t bytes) {
  return {.field = field, .first_sample = first, .sample_count = count, .head_bytes = 40,
          .offset = offset, .payload_bytes = bytes - 40};
}

std::vector<std::uint32_t> Counts(const PackCut& cut) {
  std::vector<std::uint32_t> counts;
  for (const PackExtent& extent : cut.extents) counts.push_back(extent.chunk_count);
  return counts;
}

TEST(PackCutTest, TakesAsManyRecordsAsFit) {
  std::vector<ChunkEntry> chunks;
  for (std::uint32_t i = 0; i < 7; ++i) chunks.push_back(Chunk(0, i * 4, 4, 100 * i, 100));
  const auto cut = CutPack(TwoFields(), chunks, 300);
  ASSERT_TRUE(cut.has_value());
  EXPECT_THAT(Counts(*cut), ElementsAre(3, 3, 1));
  EXPECT_EQ(cut->extents[1].offset, 300U);
  EXPECT_EQ(cut->extents[1].bytes, 300U);
  EXPECT_EQ(cut->extents[1].first_sample, 12U);
  EXPECT_EQ(cut->extents[1].sample_count, 12U);
  EXPECT_EQ(cut->extents[2].bytes, 100U);
}

TEST(PackCutTest, RecordLargerThanAnExtentHasItsOwn) {
  const std::vector<ChunkEntry> chunks = {Chunk(0, 0, 1, 0, 50), Chunk(0, 1, 1, 56, 500),
                                          Chunk(0, 2, 1, 560, 50)};
  const auto cut = CutPack(TwoFields(), chunks, 64);
  ASSERT_TRUE(cut.has_value());
  EXPECT_THAT(Counts(*cut), ElementsAre(1, 1, 1));
  EXPECT_EQ(cut->extents[1].bytes, 500U);
  EXPECT_EQ(CutPack(TwoFields(), chunks, 1)->extents.size(), 3U);
}

TEST(PackCutTest, SortsByOffsetAndLeavesGapsAtBordersOut) {
  // The index has field 0 first; in the file fields alternate, and 1000 bytes of keys lie between.
  const std::vector<ChunkEntry> chunks = {Chunk(0, 0, 2, 64, 100), Chunk(0, 2, 2, 1264, 100),
                                          Chunk(1, 0, 2, 164, 100), Chunk(1, 2, 2, 1364, 100)};
  const auto apart = CutPack(TwoFields(), chunks, 1299);
  ASSERT_TRUE(apart.has_value());
  EXPECT_THAT(apart->order, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(Counts(*apart), ElementsAre(2, 2));
  EXPECT_EQ(apart->extents[0].bytes, 200U);
  EXPECT_EQ(apart->extents[1].offset, 1264U);
  const auto within = CutPack(TwoFields(), chunks, 1400);
  ASSERT_TRUE(within.has_value());
  EXPECT_THAT(Counts(*within), ElementsAre(4));
  EXPECT_EQ(within->extents[0].bytes, 1400U);
}

// Chunks of 100 bytes of field 0; after every `run`th of them, one of 40 bytes of field 1.
std::vector<ChunkEntry> Alternating(std::uint32_t count, std::uint32_t run) {
  std::vector<ChunkEntry> chunks;
  std::uint64_t offset = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    chunks.push_back(Chunk(0, i, 1, offset, 100));
    offset += 100;
    if ((i + 1) % run != 0) continue;
    chunks.push_back(Chunk(1, i + 1 - run, run, offset, 40));
    offset += 40;
  }
  return chunks;
}

TEST(PackCutTest, CutsWhereFieldsMeetIfThatCostsLittle) {
  // Runs of 8 + 1 chunks have 840 bytes: fields meet at 1680, and 1780 or 1880 would fit.
  const auto meeting = CutPack(TwoFields(), Alternating(40, 8), 1885);
  ASSERT_TRUE(meeting.has_value());
  EXPECT_THAT(Counts(*meeting), ElementsAre(18, 18, 9));
  // With two runs and half, an eighth would be lost.
  const auto full = CutPack(TwoFields(), Alternating(40, 8), 2085);
  ASSERT_TRUE(full.has_value());
  EXPECT_THAT(Counts(*full), ElementsAre(22, 22, 1));
  EXPECT_EQ(full->extents[1].first_sample, 16U) << "the label chunk begins before its images";
}

TEST(PackCutTest, TilesOfARunDoNotMeet) {
  compress::PackSchema schema;
  schema.fields.resize(1);
  schema.fields[0].dtype = Dtype::kU8;
  schema.fields[0].rank = 1;
  schema.fields[0].extent[0] = 2;
  std::vector<ChunkEntry> chunks;
  for (std::uint32_t i = 0; i < 32; ++i) {
    chunks.push_back(Chunk(0, i / 2, 1, i * 50, 50));
    chunks.back().tile = i % 2;
  }
  const auto cut = CutPack(schema, chunks, 850);
  ASSERT_TRUE(cut.has_value());
  EXPECT_THAT(Counts(*cut), ElementsAre(16, 16));
}

TEST(PackCutTest, BoundsChunksAndSamplesOfAnExtent) {
  std::vector<ChunkEntry> chunks;
  for (std::uint32_t i = 0; i < 40; ++i) {
    chunks.push_back(Chunk(0, i * 65'536ULL, 65'536, i * 40ULL, 40));
  }
  const auto samples = CutPack(TwoFields(), chunks, limits::kExtentBytesMax);
  ASSERT_TRUE(samples.has_value());
  EXPECT_THAT(Counts(*samples), ElementsAre(16, 16, 8));
  chunks.clear();
  for (std::uint32_t i = 0; i <= limits::kSamplesPerExtentMax; ++i) {
    chunks.push_back(Chunk(i % 2, 0, 1, i * 40ULL, 40));
  }
  const auto many = CutPack(TwoFields(), chunks, limits::kExtentBytesMax);
  ASSERT_TRUE(many.has_value());
  EXPECT_THAT(Counts(*many), ElementsAre(limits::kSamplesPerExtentMax, 1));
}

TEST(PackCutTest, RefusesRecordsThatOverlap) {
  const std::vector<ChunkEntry> chunks = {Chunk(0, 0, 1, 64, 100), Chunk(0, 1, 1, 160, 100)};
  const auto cut = CutPack(TwoFields(), chunks, 1000);
  ASSERT_FALSE(cut.has_value());
  EXPECT_EQ(cut.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(cut.error().message(), HasSubstr("the chunk at byte 160 overlaps"));
}

}  // namespace
}  // namespace forebay::catalog
