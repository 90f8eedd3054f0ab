// Which losses are certain in every order of a rank's openings.
#include "client/cli/stream/sure_loss.h"

#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/order_spec.h"

namespace forebay::cli::sure_loss_test {

constexpr std::uint64_t kRanks = 2;
constexpr std::uint64_t kBatch = 4;
constexpr std::uint64_t kSteps = 6;

struct Delivered {
  std::uint64_t first = 0;
  std::vector<std::uint64_t> steps;
  StepKey end = kBehindEveryStep;
  std::uint64_t ranks = kRanks;
  std::uint64_t rank = 1;
};

class SureLossTest : public ::testing::Test {
 protected:
  void Add(const Delivered& delivered) {
    const std::uint64_t share = kBatch / delivered.ranks;
    std::vector<LoggedBatch> batches;
    for (const std::uint64_t step : delivered.steps) {
      batches.push_back({.step = step, .first = step * kBatch + delivered.rank * share,
                         .count = share});
    }
    batches_.push_back(batches);
    CountedDelivery opening = {.place = {}, .end = delivered.end, .batches = {}};
    opening.place.ranks = delivered.ranks;
    opening.place.rank = delivered.rank;
    opening.place.first = {0, delivered.first};
    openings_.push_back(opening);
  }
  bool IsLost(std::uint64_t samples = kSteps * kBatch) {
    for (std::size_t i = 0; i < openings_.size(); ++i) openings_[i].batches = batches_[i];
    const StepPlan plan = *StepPlan::Create({.sample_count = samples, .global_batch = kBatch,
                                             .ranks = 1, .tail = TailPolicy::kShort});
    return FindSureLoss(openings_, plan, {0, 0}, end_).has_value();
  }

  std::vector<CountedDelivery> openings_;
  std::vector<std::vector<LoggedBatch>> batches_;  // of each
  StepKey end_ = {1, 0};
};

TEST_F(SureLossTest, AChainOfOpeningsThatLeadsToTheStartLosesNothing) {
  Add({.first = 4, .steps = {4, 5}});
  Add({.first = 2, .steps = {2, 3}});
  Add({.first = 0, .steps = {0, 1, 2}});
  Add({.first = 3, .steps = {3}});
  EXPECT_FALSE(IsLost());
}

TEST_F(SureLossTest, EveryChainLacksAStep) {
  Add({.first = 0, .steps = {0, 1, 2, 3, 4, 5}, .end = {0, 2}});
  Add({.first = 2, .steps = {2, 3, 4}});
  Add({.first = 3, .steps = {3, 5}});
  EXPECT_TRUE(IsLost());
  end_ = {0, 5};  // what comes behind may be unfinished
  EXPECT_FALSE(IsLost());
}

TEST_F(SureLossTest, TheRankIsNamed) {
  Add({.first = 0, .steps = {0, 1, 2, 3, 5}});
  EXPECT_TRUE(IsLost());
  const StepPlan plan = *StepPlan::Create({.sample_count = kSteps * kBatch,
                                           .global_batch = kBatch});
  const std::optional<LosingRank> losing = FindSureLoss(openings_, plan, {0, 0}, end_);
  ASSERT_TRUE(losing.has_value());
  EXPECT_EQ(losing->ranks, kRanks);
  EXPECT_EQ(losing->rank, 1U);
}

TEST_F(SureLossTest, WhatIsTakenBackInEveryOrderDoesNotCount) {
  Add({.first = 0, .steps = {0, 1, 2, 3, 4, 5}});
  EXPECT_FALSE(IsLost());
  openings_[0].end = {0, 3};
  EXPECT_TRUE(IsLost());
}

TEST_F(SureLossTest, AStepThatAnotherNumberOfRanksMayHaveIsLeftOut) {
  Add({.first = 0, .steps = {0, 1, 2, 5}});
  EXPECT_TRUE(IsLost());
  Add({.first = 3, .steps = {3, 4}, .ranks = 1, .rank = 0});
  EXPECT_FALSE(IsLost());
}

// A program that pulls parts of a step by name may have all of it.
TEST_F(SureLossTest, AStepThatWasNotDeliveredInSharesIsLeftOut) {
  Add({.first = 0, .steps = {0, 1, 2, 3, 5}});
  EXPECT_TRUE(IsLost());
  Add({.first = 5, .steps = {4, 5}});  // in front of where it began
  EXPECT_FALSE(IsLost());
  openings_.pop_back();
  batches_.pop_back();
  Add({.first = 4, .steps = {4}});
  batches_.back().front().first -= 1;
  EXPECT_FALSE(IsLost());
}

TEST_F(SureLossTest, AShareWithoutSamplesIsNotLost) {
  Add({.first = 0, .steps = {0, 1, 2, 3, 4}, .rank = 0});
  EXPECT_TRUE(IsLost());
  EXPECT_FALSE(IsLost((kSteps - 1) * kBatch + 1)) << "rank 1 has all of the last step";
}

TEST_F(SureLossTest, AnEpochWithoutStepsLosesNothing) {
  const StepPlan plan = *StepPlan::Create({.sample_count = 1, .global_batch = kBatch});
  ASSERT_EQ(plan.steps(), 0U);
  Add({});
  EXPECT_FALSE(FindSureLoss(openings_, plan, {0, 0}, end_).has_value());
}

}  // namespace forebay::cli::sure_loss_test
