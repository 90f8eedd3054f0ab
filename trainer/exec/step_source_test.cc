// How the samples of an evaluation step are divided among replicas and micro-batches.
#include "trainer/exec/step_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

namespace forebay::train {
namespace {

using Counts = std::vector<std::uint32_t>;

TEST(EvaluationCountsTest, MicroBatchesAreNoLargerThanTheTrainings) {
  EXPECT_EQ(EvaluationCounts({.replicas = 1, .stages = 1}, 16, 64), (Counts{16, 16, 16, 16}));
  EXPECT_EQ(EvaluationCounts({.replicas = 1, .stages = 1}, 64, 64), (Counts{64}));
  for (const Layout layout :
       {Layout{.replicas = 1, .stages = 1}, Layout{.replicas = 3, .stages = 2},
        Layout{.replicas = 4, .stages = 1}}) {
    for (const std::uint64_t samples : {1U, 7U, 64U, 500U, 10'000U}) {
      const Counts counts = EvaluationCounts(layout, 16, samples);
      EXPECT_LE(std::ranges::max(counts), 16U) << samples;
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), samples);
      // As plans ask for: as many for each replica, a power of two.
      ASSERT_EQ(counts.size() % layout.replicas, 0U);
      EXPECT_TRUE(std::has_single_bit(counts.size() / layout.replicas));
    }
  }
}

TEST(EvaluationCountsTest, APipelineIsFilledHoweverFewSamplesThereAre) {
  EXPECT_EQ(EvaluationCounts({.replicas = 1, .stages = 2}, 16, 8), Counts(8, 1));
}

}  // namespace
}  // namespace forebay::train
