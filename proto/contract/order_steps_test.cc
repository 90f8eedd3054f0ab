// StepPlan: every rank count and micro-batch size cuts the same global order.
#include "proto/contract/order_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/contract/limits.h"

namespace forebay {
namespace {

using ::testing::HasSubstr;

StepPlan Plan(std::uint64_t sample_count, std::uint64_t global_batch, std::uint64_t ranks,
              TailPolicy tail) {
  return StepPlan::Create({.sample_count = sample_count,
                           .global_batch = global_batch,
                           .ranks = ranks,
                           .tail = tail})
      .value();
}

constexpr TailPolicy kTails[] = {TailPolicy::kDrop, TailPolicy::kPad, TailPolicy::kShort};

TEST(StepPlanTest, StepsFollowTheTailPolicy) {
  EXPECT_EQ(Plan(10, 4, 1, TailPolicy::kDrop).steps(), 2U);
  EXPECT_EQ(Plan(10, 4, 1, TailPolicy::kPad).steps(), 3U);
  EXPECT_EQ(Plan(10, 4, 1, TailPolicy::kShort).steps(), 3U);
  for (const TailPolicy tail : kTails) EXPECT_EQ(Plan(12, 4, 1, tail).steps(), 3U);
  EXPECT_EQ(Plan(3, 4, 1, TailPolicy::kDrop).steps(), 0U);
  EXPECT_EQ(Plan(10, 4, 1, TailPolicy::kDrop).dropped_samples(), 2U);
  EXPECT_EQ(Plan(10, 4, 1, TailPolicy::kPad).dropped_samples(), 0U);
  EXPECT_EQ(Plan(10, 4, 1, TailPolicy::kPad).padded_samples(), 2U);
  EXPECT_EQ(Plan(10, 4, 1, TailPolicy::kShort).padded_samples(), 0U);
}

// Concatenated rank slices are the step, for every n, B, R and policy; so are micro-batches,
// and the consumed positions of an epoch are what the policy promises.
TEST(StepPlanTest, SlicesTileEveryStep) {
  int cases = 0;
  for (std::uint64_t n = 1; n <= 50; ++n) {
    for (std::uint64_t batch = 1; batch <= 24; ++batch) {
      for (std::uint64_t ranks = 1; ranks <= batch; ++ranks) {
        if (batch % ranks != 0) continue;
        for (const TailPolicy tail : kTails) {
          const StepPlan plan = Plan(n, batch, ranks, tail);
          std::uint64_t next = 0;
          for (std::uint64_t g = 0; g < plan.steps(); ++g) {
            for (std::uint64_t rank = 0; rank < ranks; ++rank) {
              const StepSlice slice = plan.RankSlice(StepId(g), rank).value();
              ASSERT_EQ(slice.first, next);
              next += slice.count;
              ASSERT_EQ(slice, plan.MicroBatchSlice({StepId(g), rank, batch / ranks}).value());
              if (tail != TailPolicy::kShort) { ASSERT_EQ(slice.count, batch / ranks); }
            }
          }
          ASSERT_EQ(next, n - plan.dropped_samples() + plan.padded_samples());
          ++cases;
        }
      }
    }
  }
  EXPECT_GE(cases, 10'000);
}

TEST(StepPlanTest, ShortStepIsSharedByTheRule) {
  const StepPlan plan = Plan(4 * 8 + 5, 8, 4, TailPolicy::kShort);
  const std::vector<StepSlice> expected = {{32, 1}, {33, 1}, {34, 1}, {35, 2}};
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(plan.RankSlice(StepId(4), rank).value(), expected[rank]);
  }
}

TEST(StepPlanTest, PaddedPositionsWrapAndAreFlagged) {
  const StepPlan plan = Plan(10, 4, 1, TailPolicy::kPad);
  EXPECT_EQ(plan.Resolve(9).position, Position(9));
  EXPECT_FALSE(plan.Resolve(9).padded);
  EXPECT_EQ(plan.Resolve(10).position, Position(0));
  EXPECT_TRUE(plan.Resolve(10).padded);
  const StepPlan tiny = Plan(3, 16, 1, TailPolicy::kPad);
  EXPECT_EQ(tiny.Step(StepId(0)).value().count, 16U);
  EXPECT_EQ(tiny.Resolve(15).position, Position(0));
  EXPECT_EQ(tiny.Resolve(14).position, Position(2));
}

TEST(StepPlanTest, StepOfNamesTheConsumingStep) {
  const StepPlan plan = Plan(10, 4, 1, TailPolicy::kDrop);
  EXPECT_EQ(plan.StepOf(Position(0)), StepId(0));
  EXPECT_EQ(plan.StepOf(Position(7)), StepId(1));
  EXPECT_EQ(plan.StepOf(Position(8)), StepId(plan.steps()));
}

TEST(StepPlanTest, HoldsAtTheLimits) {
  const StepPlan plan = Plan(limits::kSampleCountMax, limits::kGlobalBatchMax,
                             limits::kGlobalBatchMax, TailPolicy::kShort);
  const std::uint64_t last = plan.steps() - 1;
  const auto slice = plan.RankSlice(StepId(last), limits::kGlobalBatchMax - 1).value();
  EXPECT_EQ(slice.first + slice.count, limits::kSampleCountMax);
}

TEST(StepPlanTest, RefusesImpossibleRequestsByName) {
  const auto error = [](const StepPlanOptions& options) {
    const auto plan = StepPlan::Create(options);
    return plan ? std::string("accepted") : plan.error().ToString();
  };
  const StepPlanOptions good{.sample_count = 10, .global_batch = 4, .ranks = 2};
  StepPlanOptions bad = good;
  bad.sample_count = 0;
  EXPECT_THAT(error(bad), HasSubstr("OUT_OF_RANGE: StepPlan.sample_count"));
  bad.sample_count = limits::kSampleCountMax + 1;
  EXPECT_THAT(error(bad), HasSubstr("OUT_OF_RANGE: StepPlan.sample_count"));
  bad = good;
  bad.global_batch = 0;
  EXPECT_THAT(error(bad), HasSubstr("OUT_OF_RANGE: StepPlan.global_batch"));
  bad.global_batch = limits::kGlobalBatchMax + 1;
  EXPECT_THAT(error(bad), HasSubstr("OUT_OF_RANGE: StepPlan.global_batch"));
  bad = good;
  bad.ranks = 0;
  EXPECT_THAT(error(bad), HasSubstr("OUT_OF_RANGE: StepPlan.ranks"));
  bad.ranks = 5;
  EXPECT_THAT(error(bad), HasSubstr("OUT_OF_RANGE: StepPlan.ranks"));
  bad.ranks = 3;
  EXPECT_THAT(error(bad), HasSubstr("INVALID_ARGUMENT: StepPlan.ranks 3 does not divide"));
  bad = good;
  bad.tail = TailPolicy{9};
  EXPECT_THAT(error(bad), HasSubstr("INVALID_ARGUMENT: StepPlan.tail"));
}

TEST(StepPlanTest, RefusesStepsRanksAndMicroBatchesThatDoNotExist) {
  const StepPlan plan = Plan(10, 4, 2, TailPolicy::kDrop);
  using enum ErrorCode;
  EXPECT_EQ(plan.Step(StepId(2)).error().code(), kOutOfRange);
  EXPECT_EQ(plan.Step(StepId(~0ULL)).error().code(), kOutOfRange);
  EXPECT_EQ(plan.RankSlice(StepId(2), 0).error().code(), kOutOfRange);
  EXPECT_EQ(plan.RankSlice(StepId(0), 2).error().code(), kOutOfRange);
  EXPECT_EQ(plan.MicroBatchSlice({StepId(2), 0, 1}).error().code(), kOutOfRange);
  EXPECT_EQ(plan.MicroBatchSlice({StepId(0), 0, 0}).error().code(), kOutOfRange);
  EXPECT_EQ(plan.MicroBatchSlice({StepId(0), 0, 5}).error().code(), kOutOfRange);
  EXPECT_EQ(plan.MicroBatchSlice({StepId(0), 0, 3}).error().code(), kInvalidArgument);
  EXPECT_EQ(plan.MicroBatchSlice({StepId(0), 4, 1}).error().code(), kOutOfRange);
}

}  // namespace
}  // namespace forebay
