// Bytes and times of modes, computed by hand for a set of 1,000 samples in 10 extents.
#include "client/cli/tune/reading_cost.h"

#include <gtest/gtest.h>

namespace forebay::cli {
namespace {

constexpr DatasetSize kSet = {.samples = 1'000, .bytes = 1'000'000, .extents = 10};

JobFigures CostedJob(std::uint64_t nodes, double ram, double ssd) {
  return {.nodes = nodes,
          .ram_bytes = ram,
          .ssd_bytes = ssd,
          .rates = {1e6, 5e5, 1e5, 1e5},  // RAM, SSD, link, GFS
          .gfs_reads_per_s = 100};
}

double BytesFrom(const ReadingCost& cost, ReadSource source) {
  return cost.bytes[static_cast<std::size_t>(source)];
}

OrderShape CostedBlock(std::uint64_t run, std::uint64_t window) {
  return {.mode = OrderMode::kBlock, .block_samples = run, .window_runs = window};
}

OrderShape CostedPartial(std::uint32_t millionths) {
  return {.mode = OrderMode::kPartial,
          .block_samples = 100,
          .canonical_nodes = 4,
          .exchange_millionths = millionths,
          .global_batch = 64};
}

TEST(ReadingCostTest, OneNodeThatHoldsTheSetReadsItsRam) {
  const ReadingCost cost = CostOf({}, kSet, CostedJob(1, 2e6, 0));
  EXPECT_EQ(BytesFrom(cost, ReadSource::kRam), 1e6);
  EXPECT_EQ(BytesFrom(cost, ReadSource::kSsd), 0);
  EXPECT_EQ(BytesFrom(cost, ReadSource::kLink), 0);
  EXPECT_EQ(BytesFrom(cost, ReadSource::kGfs), 0);
  EXPECT_EQ(cost.gfs_reads, 0);
  EXPECT_DOUBLE_EQ(cost.seconds, 1);
  EXPECT_EQ(cost.slowest, ReadSource::kRam);
}

TEST(ReadingCostTest, WhatRamDoesNotHoldIsReadFromSsd) {
  const ReadingCost cost = CostOf({}, kSet, CostedJob(1, 4e5, 1e6));
  EXPECT_EQ(BytesFrom(cost, ReadSource::kRam), 4e5);
  EXPECT_EQ(BytesFrom(cost, ReadSource::kSsd), 6e5);
  // 0.6 MB at 0.5 MB/s, while RAM takes 0.4 s.
  EXPECT_DOUBLE_EQ(cost.seconds, 1.2);
  EXPECT_EQ(cost.slowest, ReadSource::kSsd);
}

TEST(ReadingCostTest, OfFourNodesEachGetsThreeQuartersOfItsPartFromOthers) {
  for (const OrderShape& shape : {OrderShape{}, CostedBlock(100, 2), CostedPartial(100'000)}) {
    const ReadingCost cost = CostOf(shape, kSet, CostedJob(4, 1e6, 0));
    EXPECT_EQ(BytesFrom(cost, ReadSource::kRam), 250'000);
    EXPECT_EQ(BytesFrom(cost, ReadSource::kLink), 187'500);
    EXPECT_DOUBLE_EQ(cost.seconds, 1.875);
    EXPECT_EQ(cost.slowest, ReadSource::kLink);
  }
}

TEST(ReadingCostTest, CopiesSaveTheirPartOfWhatOthersSupply) {
  JobFigures job = CostedJob(4, 1e6, 0);
  job.copies_bytes = 250'000;
  // A quarter of the set is the node's share and a quarter are copies, so half is asked for.
  EXPECT_DOUBLE_EQ(BytesFrom(CostOf({}, kSet, job), ReadSource::kLink), 125'000);
  job.ram_bytes = 300'000;
  EXPECT_DOUBLE_EQ(BytesFrom(CostOf({}, kSet, job), ReadSource::kLink), 175'000)
      << "there is space for 50,000 bytes of copies";
  job.ram_bytes = 2e6;
  job.copies_bytes = 2e6;
  EXPECT_DOUBLE_EQ(BytesFrom(CostOf({}, kSet, job), ReadSource::kLink), 0);
  job.ram_bytes = 1e5;
  EXPECT_DOUBLE_EQ(BytesFrom(CostOf({}, kSet, job), ReadSource::kLink), 187'500)
      << "there is not even space for the share";
}

TEST(ReadingCostTest, WithHomeSharesOnlyExchangedSamplesCrossALink) {
  JobFigures job = CostedJob(4, 1e6, 0);
  job.keeps_home_shares = true;
  EXPECT_DOUBLE_EQ(BytesFrom(CostOf(CostedPartial(0), kSet, job), ReadSource::kLink), 0);
  EXPECT_DOUBLE_EQ(BytesFrom(CostOf(CostedPartial(200'000), kSet, job), ReadSource::kLink), 37'500);
  // A full exchange sends as much as global does.
  EXPECT_DOUBLE_EQ(BytesFrom(CostOf(CostedPartial(1'000'000), kSet, job), ReadSource::kLink),
                   BytesFrom(CostOf({}, kSet, job), ReadSource::kLink));
}

TEST(ReadingCostTest, GlobalReadsWhatFitsNowhereSampleBySample) {
  const ReadingCost cost = CostOf({}, kSet, CostedJob(1, 4e5, 1e5));
  EXPECT_EQ(BytesFrom(cost, ReadSource::kGfs), 500'000);
  EXPECT_DOUBLE_EQ(cost.gfs_reads, 500);
  // 5 s by bytes and by requests: 500 of them at 100 per second.
  EXPECT_DOUBLE_EQ(cost.seconds, 5);
  JobFigures job = CostedJob(1, 4e5, 1e5);
  job.gfs_reads_per_s = 50;
  EXPECT_DOUBLE_EQ(CostOf({}, kSet, job).seconds, 10) << "the requests are slower";
  EXPECT_EQ(CostOf({}, kSet, job).slowest, ReadSource::kGfs);
}

TEST(ReadingCostTest, BlockReadsExtentsWhole) {
  // A run of 400 samples overlaps 4.99 extents of 100 on average: 1 + 99 / 400 reads of each.
  const ReadingCost cost = CostOf(CostedBlock(400, 1), kSet, CostedJob(1, 0, 5e5));
  EXPECT_EQ(BytesFrom(cost, ReadSource::kGfs), 500'000) << "the window does not fit, so in pieces";
  const ReadingCost fits = CostOf(CostedBlock(400, 1), kSet, CostedJob(4, 0, 1e5));
  // 400 samples, each read 1.2475 times, on four nodes: 124,750 of 200,000 bytes.
  EXPECT_DOUBLE_EQ(BytesFrom(fits, ReadSource::kGfs), 150'000 * 1.2475);
  EXPECT_DOUBLE_EQ(fits.gfs_reads, 1.5 * 1.2475);
}

TEST(ReadingCostTest, ARunOfTheWholeSetSharesNoExtent) {
  JobFigures job = CostedJob(1, 0, 0);
  job.ram_bytes = 16e6;
  EXPECT_EQ(CostOf(CostedBlock(1'000, 1), kSet, job).gfs_reads, 0) << "the set fits into RAM";
  DatasetSize large = kSet;
  large.extents = 1;
  job.ram_bytes = 1e5;
  EXPECT_DOUBLE_EQ(CostOf(CostedBlock(1'000, 1), large, job).gfs_reads, 0.9);
}

TEST(ReadingCostTest, TheOrderOfStorageReadsEachExtentOnce) {
  const ReadingCost cost =
      CostOf({.mode = OrderMode::kSequential}, kSet, CostedJob(1, 0, 0));
  EXPECT_EQ(BytesFrom(cost, ReadSource::kGfs), 1e6);
  EXPECT_DOUBLE_EQ(cost.gfs_reads, 10);
}

TEST(ReadingCostTest, DaemonsLeaveAPartOfEachTierFree) {
  EXPECT_EQ(BytesWithoutHome(kSet, CostedJob(1, 2e6, 0)), 0);
  // 31/32 of RAM, or 15/16 of it where extents pass to SSD, of which 94 % are for homes.
  EXPECT_DOUBLE_EQ(BytesWithoutHome(kSet, CostedJob(1, 1e6, 0)), 1e6 / 32);
  EXPECT_DOUBLE_EQ(BytesWithoutHome(kSet, CostedJob(1, 4e5, 5e5)), 1e6 - 375'000 - 470'000);
  EXPECT_DOUBLE_EQ(BytesWithoutHome(kSet, CostedJob(4, 0, 0)), 250'000) << "a node's share";
}

}  // namespace
}  // namespace forebay::cli
