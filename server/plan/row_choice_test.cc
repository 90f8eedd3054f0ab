// Tests which of the three ways costs fewest bytes, at and around the points where that changes.
#include "server/plan/row_choice.h"

#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::plan {
namespace {

constexpr std::uint64_t kRowBytes = 10'000;

// 1,000 samples of 10,000 bytes, compressed to a fifth, of which a batch takes one as a row.
constexpr TakenExtent kExtent = {.samples = {.stored = 1000, .of_batch = 1},
                                 .stored_bytes = 2'000'000,
                                 .row_bytes = kRowBytes};
// 8 of these samples.
constexpr TakenChunk kChunk = {.samples = {.stored = 8, .of_batch = 1},
                               .row_bytes = kRowBytes,
                               .chunk_bytes = 16'000,
                               .is_kept = true};

ReadingShape Blocks(std::uint64_t block_samples, std::uint64_t window_runs, std::uint64_t ranks,
                    std::uint64_t nodes) {
  return {.order = {.mode = OrderMode::kBlock,
                    .block_samples = block_samples,
                    .window_runs = window_runs},
          .sample_count = 1'000'000,
          .ranks = ranks,
          .nodes = nodes};
}

ReadingShape Sequential(std::uint64_t ranks, std::uint64_t nodes) {
  return {.order = {.mode = OrderMode::kSequential},
          .sample_count = 1'000'000,
          .ranks = ranks,
          .nodes = nodes};
}

// The extent, of which a batch takes `samples` in this many chunks.
TakenExtent InChunks(std::uint64_t samples, std::uint64_t chunks) {
  TakenExtent extent = kExtent;
  extent.samples.of_batch = samples;
  extent.row_bytes = 0;
  extent.chunk_bytes = chunks * kChunk.chunk_bytes;
  extent.chunks_are_kept = true;
  return extent;
}

TEST(RowChoiceTest, AGlobalOrderTakesRowsUnlessOneBatchTakesMoreThanACopy) {
  for (const OrderMode mode : {OrderMode::kGlobal, OrderMode::kPartial}) {
    const ReadingShape reading = {.order = {.mode = mode}, .sample_count = 1'000'000};
    TakenExtent extent = kExtent;
    EXPECT_EQ(SamplesInWindow(extent.samples, reading), 1U);
    EXPECT_FALSE(IsCopied(extent, reading));
    extent.samples.of_batch = 200;
    extent.row_bytes = extent.stored_bytes - 1;
    EXPECT_FALSE(IsCopied(extent, reading));
    extent.row_bytes = extent.stored_bytes;
    EXPECT_TRUE(IsCopied(extent, reading)) << "as many bytes bring the whole extent";
  }
}

TEST(RowChoiceTest, RunsOfWholeExtentsAreCopiedUntilThereAreMoreNodesThanTheRatio) {
  // A node takes 1 / N of the decoded bytes, and a copy takes a fifth of them.
  EXPECT_TRUE(IsCopied(kExtent, Blocks(1000, 8, 4, 4)));
  EXPECT_TRUE(IsCopied(kExtent, Blocks(1000, 8, 5, 5)));
  EXPECT_FALSE(IsCopied(kExtent, Blocks(1000, 8, 6, 6)));
  // Longer runs do not take more of one extent than all of it.
  EXPECT_EQ(SamplesInWindow(kExtent.samples, Blocks(1000, 8, 4, 4)), 250U);
  EXPECT_EQ(SamplesInWindow(kExtent.samples, Blocks(50'000, 8, 4, 4)), 250U);
}

TEST(RowChoiceTest, RanksOfOneNodeTakeTheirPartsTogether) {
  EXPECT_FALSE(IsCopied(kExtent, Blocks(1000, 8, 64, 8)));
  EXPECT_EQ(SamplesInWindow(kExtent.samples, Blocks(1000, 8, 64, 8)), 125U);
  EXPECT_EQ(SamplesInWindow(kExtent.samples, Blocks(1000, 8, 1, 8)), 1000U)
      << "one rank reads everything";
}

TEST(RowChoiceTest, ShortRunsTakeAPartOfAnExtent) {
  // A run of 100 of its 1,000 samples, and of the others about one in ten.
  const ReadingShape reading = Blocks(100, 1001, 1, 1);
  EXPECT_EQ(SamplesInWindow(kExtent.samples, reading), 100U + 900 * 100'000 / 999'900);
  EXPECT_FALSE(IsCopied(kExtent, reading));
  EXPECT_TRUE(IsCopied(kExtent, Blocks(200, 10, 1, 1)));
  EXPECT_FALSE(IsCopied(kExtent, Blocks(199, 1, 1, 1)));
}

TEST(RowChoiceTest, AWindowOfTheWholeEpochTakesWholeExtents) {
  EXPECT_EQ(SamplesInWindow(kExtent.samples, Blocks(100, 10'000, 1, 1)), 1000U);
  EXPECT_EQ(SamplesInWindow(kExtent.samples,
                            Blocks(limits::kSampleCountMax, limits::kSampleCountMax, 1, 1)),
            1000U);
  EXPECT_EQ(SamplesInWindow(kExtent.samples, Blocks(2, limits::kSampleCountMax, 1, 1)), 1000U);
}

TEST(RowChoiceTest, ASequentialOrderPassesOverTheWholeExtent) {
  EXPECT_EQ(SamplesInWindow(kExtent.samples, Sequential(2, 2)), 500U);
  EXPECT_TRUE(IsCopied(kExtent, Sequential(2, 2)));
}

TEST(RowChoiceTest, ABatchNeverTakesLessThanItTakes) {
  EXPECT_EQ(SamplesInWindow({.stored = 8, .of_batch = 7}, Blocks(100, 8, 4, 4)), 7U);
}

TEST(RowChoiceTest, IncompressibleExtentsTravelAsRowsOverTwoNodesAndMore) {
  TakenExtent extent = kExtent;
  extent.stored_bytes = 1000 * kRowBytes;
  EXPECT_FALSE(IsCopied(extent, Blocks(1000, 8, 2, 2)));
  EXPECT_TRUE(IsCopied(extent, Blocks(1000, 8, 1, 2)));
}

TEST(RowChoiceTest, AKeptChunkCostsLessThanTheRowsOfItsWindow) {
  // The readers of a node take 8 / N rows of it, and the chunk is as large as 1.6 rows.
  EXPECT_TRUE(IsSentAsChunk(kChunk, Blocks(100, 8, 2, 2)));
  EXPECT_TRUE(IsSentAsChunk(kChunk, Blocks(100, 8, 4, 4)));
  EXPECT_FALSE(IsSentAsChunk(kChunk, Blocks(100, 8, 8, 8)));
  EXPECT_TRUE(IsSentAsChunk(kChunk, Sequential(4, 4)));
  EXPECT_FALSE(IsSentAsChunk(kChunk, Blocks(1, 8, 1, 2))) << "one sample of it is in the window";
}

TEST(RowChoiceTest, AChunkThatIsNotKeptMustCostLessThanTheRowsOfOneBatch) {
  TakenChunk chunk = kChunk;
  chunk.is_kept = false;
  EXPECT_FALSE(IsSentAsChunk(chunk, Blocks(100, 8, 2, 2)));
  chunk.samples.of_batch = 2;
  EXPECT_TRUE(IsSentAsChunk(chunk, Blocks(100, 8, 2, 2)));
  chunk.chunk_bytes = 2 * kRowBytes;
  EXPECT_FALSE(IsSentAsChunk(chunk, Blocks(100, 8, 2, 2))) << "as many bytes";
}

TEST(RowChoiceTest, OwnersDecodeForOrdersWithoutRuns) {
  TakenChunk chunk = kChunk;
  chunk.samples.of_batch = 8;
  for (const OrderMode mode : {OrderMode::kGlobal, OrderMode::kPartial}) {
    EXPECT_FALSE(IsSentAsChunk(chunk, {.order = {.mode = mode}, .sample_count = 1'000'000}));
  }
}

TEST(RowChoiceTest, ChunksOfShortRunsAreFewerBytesThanTheirExtent) {
  // The window has a tenth of the extent, so its chunks are a tenth of the bytes of a copy.
  EXPECT_FALSE(IsCopied(InChunks(2, 2), Blocks(100, 8, 2, 2)));
  EXPECT_TRUE(IsCopied(InChunks(2, 2), Blocks(1000, 8, 2, 2))) << "all its chunks are needed";
  TakenExtent extent = InChunks(2, 2);
  extent.chunks_are_kept = false;
  EXPECT_FALSE(IsCopied(extent, Blocks(100, 8, 2, 2))) << "50 chunks of 16,000 bytes";
  EXPECT_TRUE(IsCopied(extent, Blocks(250, 8, 2, 2))) << "125 of them";
}

TEST(RowChoiceTest, ASequentialOrderTakesTheChunksOfItsOwnBatches) {
  // A batch has 32 consecutive samples, in 4 chunks; the node takes a half, or all of the extent.
  EXPECT_FALSE(IsCopied(InChunks(32, 4), Sequential(2, 2)));
  EXPECT_TRUE(IsCopied(InChunks(32, 4), Sequential(1, 2)));
}

TEST(RowChoiceTest, OneBatchMayTakeAllChunksOfASmallExtent) {
  TakenExtent extent = InChunks(1, 1);
  extent.stored_bytes = kChunk.chunk_bytes;
  const ReadingShape global = {.order = {}, .sample_count = 1'000'000};
  for (const ReadingShape& reading : {global, Blocks(100, 8, 2, 2), Sequential(2, 2)}) {
    EXPECT_TRUE(IsCopied(extent, reading));
  }
}

}  // namespace
}  // namespace forebay::plan
