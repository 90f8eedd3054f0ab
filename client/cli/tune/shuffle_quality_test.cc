// Figures of shuffle quality, computed by hand where an order is simple, and for the extremes of
// each mode: block(1), partial(0), partial(1), one node.
#include "client/cli/tune/shuffle_quality.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "client/cli/tune/class_layout.h"

namespace forebay::cli {
namespace {

constexpr std::uint64_t kMixedSamples = 8'000;
constexpr std::uint64_t kClasses = 8;
constexpr BatchShape kBatch = {.global_batch = 64, .parts = 4};

OrderSpec MixedSpec(const OrderShape& shape, std::uint64_t samples = kMixedSamples) {
  return {.seed = 3, .sample_count = samples, .shape = shape};
}

OrderShape MixedBlock(std::uint64_t run, std::uint64_t window) {
  return {.mode = OrderMode::kBlock, .block_samples = run, .window_runs = window};
}

OrderShape MixedPartial(std::uint64_t run, std::uint32_t millionths) {
  return {.mode = OrderMode::kPartial,
          .block_samples = run,
          .canonical_nodes = static_cast<std::uint32_t>(kBatch.parts),
          .exchange_millionths = millionths,
          .global_batch = static_cast<std::uint32_t>(kBatch.global_batch)};
}

ShuffleQuality Mixing(const OrderShape& shape, const BatchShape& batch = kBatch) {
  const Result<ShuffleQuality> quality =
      MeasureShuffleQuality(MixedSpec(shape), batch, ClassLayout::Sorted(kMixedSamples, kClasses));
  EXPECT_TRUE(quality) << quality.error().message();
  return quality.value_or(ShuffleQuality{});
}

TEST(ClassLayoutTest, SortedClassesAreRunsOfEqualLength) {
  const ClassLayout layout = ClassLayout::Sorted(10, 4);
  std::vector<std::uint32_t> classes;
  for (std::uint64_t i = 0; i < 10; ++i) classes.push_back(layout.ClassOf(i));
  EXPECT_EQ(classes, (std::vector<std::uint32_t>{0, 0, 0, 1, 1, 2, 2, 2, 3, 3}));
  // Two classes of 3 and two of 2 samples.
  const double bits = 2 * 0.3 * std::log2(1 / 0.3) + 2 * 0.2 * std::log2(1 / 0.2);
  EXPECT_NEAR(layout.Entropy(), bits, 1e-12);
}

TEST(ClassLayoutTest, LabelsMayBeAnyNumbers) {
  const ClassLayout layout = ClassLayout::FromLabels(std::vector<std::int64_t>{-7, 900, -7, 5});
  EXPECT_EQ(layout.class_count(), 3U);
  EXPECT_EQ(layout.ClassOf(0), layout.ClassOf(2));
  EXPECT_NE(layout.ClassOf(0), layout.ClassOf(1));
  EXPECT_NEAR(layout.Entropy(), 1.5, 1e-12);
}

TEST(ClassLayoutTest, EntropyOfOneValueIsZeroAndOfEqualOnesItsLogarithm) {
  EXPECT_EQ(EntropyOf(std::vector<std::uint64_t>{}), 0);
  EXPECT_EQ(EntropyOf(std::vector<std::uint64_t>{5, 0}), 0);
  EXPECT_NEAR(EntropyOf(std::vector<std::uint64_t>{3, 3, 3, 3}), 2, 1e-12);
}

TEST(ShuffleQualityTest, TheOrderOfStorageMovesNothing) {
  const ShuffleQuality quality = Mixing({.mode = OrderMode::kSequential});
  EXPECT_EQ(quality.displacement, 0);
  EXPECT_EQ(quality.repeated_neighbours, 1);
  // Classes have 1,000 samples and steps 64, so of 125 steps 7 have two classes, and 4 parts of
  // them do at most. All steps but those have one.
  EXPECT_LT(quality.batch_entropy, 0.05);
  EXPECT_LT(quality.part_entropy, quality.batch_entropy);
}

TEST(ShuffleQualityTest, GlobalMixesAsARandomPermutationDoes) {
  const ShuffleQuality quality = Mixing({});
  EXPECT_NEAR(quality.displacement, 1, 0.03);
  EXPECT_NEAR(quality.repeated_neighbours, 2.0 / kMixedSamples, 5e-4);
  // A sample of N draws from k equal classes has (k - 1) / (2 N ln 2) bits less on average.
  EXPECT_NEAR(quality.batch_entropy, 1 - 7 / (2 * 64 * std::log(2.0)) / 3, 0.005);
  EXPECT_GT(quality.batch_entropy, quality.part_entropy);
}

TEST(ShuffleQualityTest, ABatchThatIsTheWholeSetIsAsMixedAsTheSet) {
  const auto quality = MeasureShuffleQuality(MixedSpec({}, 64), {.global_batch = 64, .parts = 1},
                                             ClassLayout::Sorted(64, 8));
  ASSERT_TRUE(quality);
  EXPECT_NEAR(quality->batch_entropy, 1, 1e-12);
  EXPECT_EQ(quality->batch_entropy, quality->part_entropy) << "one node has the whole batch";
  EXPECT_EQ(quality->positions, 8 * 64U) << "the one step of eight epochs";
}

TEST(ShuffleQualityTest, AWindowOfOneRunHasTheClassesOfThatRun) {
  // Runs of 1,000 samples are exactly the classes, and 1,000 samples are 15.6 steps.
  const ShuffleQuality quality = Mixing(MixedBlock(1'000, 1));
  EXPECT_LT(quality.batch_entropy, 0.05);
  EXPECT_LT(quality.repeated_neighbours, 0.01) << "samples of a run are shuffled";
}

TEST(ShuffleQualityTest, RunsOfOneSampleMixLikeGlobal) {
  const ShuffleQuality quality = Mixing(MixedBlock(1, 1));
  EXPECT_LT(EntropyLossOf(quality, Mixing({})).part, 0.01);
  EXPECT_NEAR(quality.displacement, 1, 0.03);
}

TEST(ShuffleQualityTest, MoreRunsInAWindowMixBetter) {
  const ShuffleQuality global = Mixing({});
  double before = 1;
  for (const std::uint64_t window : {1U, 2U, 4U, 16U}) {
    const double loss = EntropyLossOf(Mixing(MixedBlock(250, window)), global).batch;
    EXPECT_LT(loss, before) << window << " runs";
    before = loss;
  }
}

TEST(ShuffleQualityTest, WithoutExchangeANodeSeesItsOwnClassesOnly) {
  // Home shares of one run each: two of the eight classes, a third of their entropy in bits.
  const ShuffleQuality quality = Mixing(MixedPartial(kMixedSamples / 4, 0));
  EXPECT_NEAR(quality.part_entropy, 1.0 / 3, 0.03);
  EXPECT_GT(quality.batch_entropy, 0.95) << "together the nodes have all classes";
  const EntropyLoss loss = EntropyLossOf(quality, Mixing({}));
  EXPECT_GT(loss.part, 0.5);
  EXPECT_EQ(loss.batch, 0) << "shares of two classes make batches more even than chance does";
}

TEST(ShuffleQualityTest, AFullExchangeMixesLikeGlobal) {
  const ShuffleQuality quality = Mixing(MixedPartial(kMixedSamples / 4, kExchangeMillionths));
  EXPECT_LT(EntropyLossOf(quality, Mixing({})).part, 0.01);
}

TEST(ShuffleQualityTest, MoreExchangeMixesBetter) {
  const ShuffleQuality global = Mixing({});
  double before = 1;
  for (const std::uint32_t millionths : {0U, 50'000U, 200'000U, 500'000U}) {
    const ShuffleQuality quality = Mixing(MixedPartial(kMixedSamples / 4, millionths));
    const double loss = EntropyLossOf(quality, global).part;
    EXPECT_LT(loss, before) << millionths;
    before = loss;
  }
}

TEST(ShuffleQualityTest, ASetOfOneClassIsAlwaysMixed) {
  const auto quality = MeasureShuffleQuality(MixedSpec({.mode = OrderMode::kSequential}), kBatch,
                                             ClassLayout::Sorted(kMixedSamples, 1));
  ASSERT_TRUE(quality);
  EXPECT_EQ(quality->batch_entropy, 1);
  EXPECT_EQ(quality->part_entropy, 1);
}

TEST(ShuffleQualityTest, OneSampleHasOnePlace) {
  const auto quality = MeasureShuffleQuality(MixedSpec({}, 1), {.global_batch = 1, .parts = 1},
                                             ClassLayout::Sorted(1, 1));
  ASSERT_TRUE(quality);
  EXPECT_EQ(quality->displacement, 0);
  EXPECT_EQ(quality->repeated_neighbours, 0);
}

TEST(ShuffleQualityTest, TheWorkIsBoundedForLargeBatches) {
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 20;
  const auto quality = MeasureShuffleQuality(MixedSpec({}, 2 * kLarge), {.global_batch = kLarge},
                                             ClassLayout::Sorted(2 * kLarge, 10));
  ASSERT_TRUE(quality);
  EXPECT_EQ(quality->positions, 8 * kLarge) << "one step of each of eight epochs";
}

TEST(ShuffleQualityTest, RefusesPartsThatDoNotDivideTheBatch) {
  const auto quality = MeasureShuffleQuality(MixedSpec({}), {.global_batch = 64, .parts = 3},
                                             ClassLayout::Sorted(kMixedSamples, 2));
  ASSERT_FALSE(quality);
  EXPECT_EQ(quality.error().code(), ErrorCode::kInvalidArgument);
}

TEST(ShuffleQualityTest, RefusesASetThatFillsNoBatch) {
  const auto quality = MeasureShuffleQuality(MixedSpec({}, 63), {.global_batch = 64, .parts = 1},
                                             ClassLayout::Sorted(63, 2));
  ASSERT_FALSE(quality);
  EXPECT_EQ(quality.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(quality.error().message().find("63 samples do not fill"), std::string::npos);
}

TEST(EntropyLossTest, IsRelativeToGlobalAndNeverBelowZero) {
  const ShuffleQuality global = {.batch_entropy = 0.9, .part_entropy = 0.5};
  const EntropyLoss loss = EntropyLossOf({.batch_entropy = 0.45, .part_entropy = 0.4}, global);
  EXPECT_NEAR(loss.batch, 0.5, 1e-12);
  EXPECT_NEAR(loss.part, 0.2, 1e-12);
  EXPECT_EQ(EntropyLossOf({.batch_entropy = 0.95, .part_entropy = 0.6}, global).batch, 0);
  EXPECT_EQ(EntropyLossOf({.batch_entropy = 0.95, .part_entropy = 0.6}, global).part, 0);
}

TEST(EntropyLossTest, PartsOfOneSampleHaveNothingToLose) {
  EXPECT_EQ(EntropyLossOf({.batch_entropy = 0.9}, {.batch_entropy = 0.9}).part, 0);
}

}  // namespace
}  // namespace forebay::cli
