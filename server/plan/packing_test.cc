// When compression at staging pays: the arithmetic, and that it moves the right way.
#include "server/plan/packing.h"

#include <gtest/gtest.h>

namespace forebay::plan {
namespace {

constexpr std::uint64_t kGb = 1'000'000'000;

// 100 GB, 2.5 times smaller when packed; RAM holds 30 GB of it and SSD 20 GB.
PackingFacts Facts() {
  return {.raw_bytes = 100 * kGb,
          .ratio = 2.5,
          .decode_bytes_per_second = 1e9,
          .encode_bytes_per_second = 1e8,
          .decode_cores = 8,
          .encode_cores = 8,
          .amplification = 1,
          .needs_all_resident = false,
          .ram_bytes = 30 * kGb,
          .ssd_bytes = 20 * kGb,
          .ram_bytes_per_second = 10e9,
          .ssd_bytes_per_second = 2e9,
          .gfs_bytes_per_second = 0.5e9};
}

TEST(Packing, CountsEachTiersShare) {
  const PackingAdvice advice = AdvisePacking(Facts());
  // Raw: 0.3 / 10 + 0.2 / 2 + 0.5 / 0.5 seconds for a GB.
  EXPECT_NEAR(advice.raw_bytes_per_second, 1e9 / 1.13, 1e6);
  // Packed 40 GB: 0.75 in RAM, 0.25 on SSD: 0.4 * 0.25 / 2 = 0.05 of waiting; 0.4 / 10 through
  // memory and 1 / 8 to decode it.
  EXPECT_NEAR(advice.packed_bytes_per_second, 1e9 / 0.165, 1e6);
  EXPECT_TRUE(advice.is_packed);
  EXPECT_NE(advice.reason.find("6.06 GB/s packed, 0.88 GB/s raw"), std::string::npos)
      << advice.reason;
}

TEST(Packing, WaitsForASlowDriveAndForTheGfs) {
  PackingFacts facts = Facts();
  facts.ssd_bytes_per_second = 0.5e9;  // 0.4 * 0.25 / 0.5
  EXPECT_NEAR(AdvisePacking(facts).packed_bytes_per_second, 1e9 / 0.2, 1e6);
  facts.ssd_bytes = 0;  // a quarter of it is read raw from the GFS: 0.25 / 0.5
  EXPECT_NEAR(AdvisePacking(facts).packed_bytes_per_second, 1e9 / 0.5, 1e6);
}

TEST(Packing, RawWhereAllOfItFitsInRam) {
  PackingFacts facts = Facts();
  facts.ram_bytes = 100 * kGb;
  const PackingAdvice advice = AdvisePacking(facts);
  EXPECT_NEAR(advice.raw_bytes_per_second, 10e9, 1e6);
  EXPECT_FALSE(advice.is_packed);
}

TEST(Packing, RawWhereNothingIsGained) {
  PackingFacts facts = Facts();
  facts.ratio = 1.0;
  EXPECT_FALSE(AdvisePacking(facts).is_packed);
  facts.ratio = 0.99;
  EXPECT_FALSE(AdvisePacking(facts).is_packed);
}

TEST(Packing, AGlobalOrderIsServedPackedWhereRawDoesNotFit) {
  PackingFacts facts = Facts();
  facts.needs_all_resident = true;
  facts.amplification = 8;
  const PackingAdvice advice = AdvisePacking(facts);
  EXPECT_EQ(advice.raw_bytes_per_second, 0);
  EXPECT_GT(advice.packed_bytes_per_second, 0);
  EXPECT_TRUE(advice.is_packed);
  facts.ratio = 1.5;  // 67 GB do not fit either
  EXPECT_FALSE(AdvisePacking(facts).is_packed);
}

TEST(Packing, MoreDecodingNeverSpeaksForIt) {
  double last = 1e18;
  for (double amplification = 1; amplification <= 64; amplification *= 2) {
    PackingFacts facts = Facts();
    facts.amplification = amplification;
    const PackingAdvice advice = AdvisePacking(facts);
    EXPECT_LT(advice.packed_bytes_per_second, last);
    last = advice.packed_bytes_per_second;
  }
  PackingFacts facts = Facts();
  facts.amplification = 64;
  EXPECT_FALSE(AdvisePacking(facts).is_packed) << "decoding 64 times is slower than the GFS";
}

TEST(Packing, BetterRatiosFasterCoresAndMoreRoomNeverSpeakAgainstIt) {
  double last = 0;
  for (double ratio = 1.1; ratio < 10; ratio *= 1.3) {
    PackingFacts facts = Facts();
    facts.ratio = ratio;
    facts.decode_bytes_per_second = 1e10;
    const double rate = AdvisePacking(facts).packed_bytes_per_second;
    EXPECT_GE(rate, last) << "ratio " << ratio;
    last = rate;
  }
  last = 0;
  for (std::uint32_t cores = 1; cores <= 64; cores *= 2) {
    PackingFacts facts = Facts();
    facts.decode_cores = cores;
    const double rate = AdvisePacking(facts).packed_bytes_per_second;
    EXPECT_GE(rate, last);
    last = rate;
  }
  for (std::uint64_t PackingFacts::*const tier :
       {&PackingFacts::ram_bytes, &PackingFacts::ssd_bytes}) {
    PackingAdvice before;
    for (std::uint64_t room = 0; room <= 100; room += 10) {
      PackingFacts facts = Facts();
      facts.*tier = room * kGb;
      const PackingAdvice advice = AdvisePacking(facts);
      EXPECT_GE(advice.raw_bytes_per_second, before.raw_bytes_per_second);
      EXPECT_GE(advice.packed_bytes_per_second, before.packed_bytes_per_second);
      before = advice;
    }
  }
}

TEST(Packing, WhatMakesNoSenseAdvisesRaw) {
  const auto with = [](auto change) {
    PackingFacts facts = Facts();
    change(facts);
    return AdvisePacking(facts);
  };
  EXPECT_FALSE(with([](PackingFacts& f) { f.decode_cores = 0; }).is_packed);
  EXPECT_FALSE(with([](PackingFacts& f) { f.ratio = 0; }).is_packed);
  EXPECT_FALSE(with([](PackingFacts& f) { f.decode_bytes_per_second = 0; }).is_packed);
  EXPECT_FALSE(with([](PackingFacts& f) { f.encode_bytes_per_second = 0; }).is_packed);
  EXPECT_FALSE(with([](PackingFacts& f) { f.gfs_bytes_per_second = 0; }).is_packed);
  EXPECT_FALSE(with([](PackingFacts& f) { f.amplification = 0.5; }).is_packed);
}

TEST(Amplification, IsOneWhereChunksAreReadInOrder) {
  const DecodeFacts facts{.samples_per_chunk = 8, .sample_bytes = 1000, .dataset_bytes = 1 << 30,
                          .decoded_cache_bytes = 1 << 20};
  EXPECT_EQ(ExpectedAmplification({.kind = OrderKind::kSequential}, facts), 1);
  EXPECT_EQ(ExpectedAmplification(
                {.kind = OrderKind::kBlock, .block_samples = 16, .window_runs = 8}, facts), 1);
}

TEST(Amplification, OfBlocksThatCutChunksOrOverflowTheCache) {
  DecodeFacts facts{.samples_per_chunk = 8, .sample_bytes = 1000, .dataset_bytes = 1 << 30,
                    .decoded_cache_bytes = 1 << 20};
  EXPECT_NEAR(ExpectedAmplification(
                  {.kind = OrderKind::kBlock, .block_samples = 14, .window_runs = 4}, facts),
              1.5, 1e-9);
  const ExpectedOrder wide{.kind = OrderKind::kBlock, .block_samples = 16, .window_runs = 1 << 20};
  EXPECT_NEAR(ExpectedAmplification(wide, facts), 8, 0.1);
  facts.decoded_cache_bytes = 0;
  EXPECT_EQ(ExpectedAmplification(wide, facts), 8);
}

TEST(Amplification, OfAGlobalOrderFallsWithTheCache) {
  DecodeFacts facts{.samples_per_chunk = 8, .sample_bytes = 1000, .dataset_bytes = 1'000'000,
                    .decoded_cache_bytes = 0};
  EXPECT_EQ(ExpectedAmplification({}, facts), 8);
  facts.decoded_cache_bytes = 500'000;
  EXPECT_EQ(ExpectedAmplification({}, facts), 4.5);
  facts.decoded_cache_bytes = 2'000'000;
  EXPECT_EQ(ExpectedAmplification({}, facts), 1);
  facts.samples_per_chunk = 1;
  facts.decoded_cache_bytes = 0;
  EXPECT_EQ(ExpectedAmplification({}, facts), 1);
}

}  // namespace
}  // namespace forebay::plan
