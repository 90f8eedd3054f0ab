// Tests which of the two ways costs fewer bytes, at and around the points where that changes.
#include "server/plan/row_choice.h"

#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::plan {
namespace {

// 1,000 samples of 10,000 bytes, compressed to a fifth.
constexpr CompressedExtent kExtent = {.stored_bytes = 2'000'000,
                                      .decoded_bytes = 10'000'000,
                                      .sample_count = 1000,
                                      .batch_bytes = 10'000};

ReadingShape Blocks(std::uint64_t block_samples, std::uint64_t window_runs, std::uint64_t ranks,
                    std::uint64_t nodes) {
  return {.order = {.mode = OrderMode::kBlock,
                    .block_samples = block_samples,
                    .window_runs = window_runs},
          .sample_count = 1'000'000,
          .ranks = ranks,
          .nodes = nodes};
}

TEST(RowChoiceTest, AGlobalOrderTakesRowsUnlessOneBatchTakesMoreThanACopy) {
  for (const OrderMode mode : {OrderMode::kGlobal, OrderMode::kPartial}) {
    const ReadingShape reading = {.order = {.mode = mode}, .sample_count = 1'000'000};
    CompressedExtent extent = kExtent;
    EXPECT_EQ(RowBytesInWindow(extent, reading), 10'000U);
    EXPECT_TRUE(TravelsAsRows(extent, reading));
    extent.batch_bytes = extent.stored_bytes - 1;
    EXPECT_TRUE(TravelsAsRows(extent, reading));
    extent.batch_bytes = extent.stored_bytes;
    EXPECT_FALSE(TravelsAsRows(extent, reading)) << "as many bytes bring the whole extent";
  }
}

TEST(RowChoiceTest, RunsOfWholeExtentsAreCopiedUntilThereAreMoreNodesThanTheRatio) {
  // A node takes 1 / N of the decoded bytes, and a copy takes a fifth of them.
  EXPECT_FALSE(TravelsAsRows(kExtent, Blocks(1000, 8, 4, 4)));
  EXPECT_FALSE(TravelsAsRows(kExtent, Blocks(1000, 8, 5, 5)));
  EXPECT_TRUE(TravelsAsRows(kExtent, Blocks(1000, 8, 6, 6)));
  // Longer runs do not take more of one extent than all of it.
  EXPECT_EQ(RowBytesInWindow(kExtent, Blocks(1000, 8, 4, 4)), 2'500'000U);
  EXPECT_EQ(RowBytesInWindow(kExtent, Blocks(50'000, 8, 4, 4)), 2'500'000U);
}

TEST(RowChoiceTest, RanksOfOneNodeTakeTheirPartsTogether) {
  EXPECT_TRUE(TravelsAsRows(kExtent, Blocks(1000, 8, 64, 8)));
  EXPECT_EQ(RowBytesInWindow(kExtent, Blocks(1000, 8, 64, 8)), 1'250'000U);
  EXPECT_EQ(RowBytesInWindow(kExtent, Blocks(1000, 8, 1, 8)), 10'000'000U)
      << "one rank reads everything";
}

TEST(RowChoiceTest, ShortRunsTakeAPartOfAnExtent) {
  // A run of 100 of its 1,000 samples, and of the others about one in ten.
  const ReadingShape reading = Blocks(100, 1001, 1, 1);
  EXPECT_EQ(RowBytesInWindow(kExtent, reading), 10'000U * (100 + 900 * 100'000 / 999'900));
  EXPECT_TRUE(TravelsAsRows(kExtent, reading));
  EXPECT_FALSE(TravelsAsRows(kExtent, Blocks(200, 10, 1, 1)));
  EXPECT_TRUE(TravelsAsRows(kExtent, Blocks(199, 1, 1, 1)));
}

TEST(RowChoiceTest, AWindowOfTheWholeEpochTakesWholeExtents) {
  EXPECT_EQ(RowBytesInWindow(kExtent, Blocks(100, 10'000, 1, 1)), 10'000'000U);
  EXPECT_EQ(RowBytesInWindow(kExtent, Blocks(limits::kSampleCountMax, limits::kSampleCountMax,
                                             1, 1)),
            10'000'000U);
  EXPECT_EQ(RowBytesInWindow(kExtent, Blocks(2, limits::kSampleCountMax, 1, 1)), 10'000'000U);
}

TEST(RowChoiceTest, ASequentialOrderPassesOverTheWholeExtent) {
  const ReadingShape reading = {.order = {.mode = OrderMode::kSequential},
                                .sample_count = 1'000'000,
                                .ranks = 2,
                                .nodes = 2};
  EXPECT_EQ(RowBytesInWindow(kExtent, reading), 5'000'000U);
  EXPECT_FALSE(TravelsAsRows(kExtent, reading));
}

TEST(RowChoiceTest, IncompressibleExtentsTravelAsRowsOverTwoNodesAndMore) {
  CompressedExtent extent = kExtent;
  extent.stored_bytes = extent.decoded_bytes;
  EXPECT_TRUE(TravelsAsRows(extent, Blocks(1000, 8, 2, 2)));
  EXPECT_FALSE(TravelsAsRows(extent, Blocks(1000, 8, 1, 2)));
}

}  // namespace
}  // namespace forebay::plan
