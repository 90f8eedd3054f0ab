// Learning rates at the first, the last and the changing steps of every schedule.
#include "trainer/core/loop/learning_rate.h"

#include <gtest/gtest.h>

namespace forebay::train {
namespace {

const LearningRateShape* Shape(std::string_view name) {
  return FindLearningRateShape(name).value();
}

TEST(LearningRate, WarmsUpLinearlyThenFallsAsACosine) {
  const LearningRateSchedule schedule{
      .shape = Shape("cosine"), .peak = 1.0, .last = 0.0, .warmup_steps = 4, .total_steps = 104};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.At(3), 1.0);
  EXPECT_DOUBLE_EQ(schedule.At(4), 1.0);
  EXPECT_NEAR(schedule.At(54), 0.5, 1e-12);
  EXPECT_GT(schedule.At(103), 0.0);
  for (std::uint64_t step = 5; step < 104; ++step) {
    EXPECT_LT(schedule.At(step), schedule.At(step - 1));
  }
}

TEST(LearningRate, ConstantStaysAtThePeak) {
  const LearningRateSchedule schedule{
      .shape = Shape("constant"), .peak = 0.3, .last = 0, .warmup_steps = 0, .total_steps = 10};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.3);
  EXPECT_DOUBLE_EQ(schedule.At(1'000'000), 0.3);
}

TEST(LearningRate, FallsInStepsFromTheirFirstStepOn) {
  const LearningRateSchedule schedule{.shape = Shape("step"),
                                      .peak = 1.0,
                                      .last = 0,
                                      .warmup_steps = 2,
                                      .total_steps = 10,
                                      .power = 1,
                                      .decay_steps = {4, 8},
                                      .decay_factor = 0.1};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(3), 1.0);
  EXPECT_DOUBLE_EQ(schedule.At(4), 0.1);
  EXPECT_NEAR(schedule.At(8), 0.01, 1e-15);
  EXPECT_NEAR(schedule.At(99), 0.01, 1e-15);
}

TEST(LearningRate, PolynomialEndsAtTheLastValue) {
  const LearningRateSchedule schedule{.shape = Shape("polynomial"),
                                      .peak = 1.0,
                                      .last = 0.2,
                                      .warmup_steps = 0,
                                      .total_steps = 10,
                                      .power = 2};
  EXPECT_DOUBLE_EQ(schedule.At(0), 1.0);
  EXPECT_NEAR(schedule.At(5), 0.4, 1e-15);
  EXPECT_DOUBLE_EQ(schedule.At(10), 0.2);
}

TEST(LearningRate, BeyondTheEndItKeepsTheLastValue) {
  const LearningRateSchedule schedule{
      .shape = Shape("cosine"), .peak = 1.0, .last = 0.1, .warmup_steps = 0, .total_steps = 10};
  EXPECT_DOUBLE_EQ(schedule.At(10), 0.1);
  EXPECT_DOUBLE_EQ(schedule.At(99), 0.1);
}

TEST(LearningRate, WarmUpLongerThanTheRunStillReachesThePeak) {
  const LearningRateSchedule schedule{
      .shape = Shape("cosine"), .peak = 1.0, .last = 0, .warmup_steps = 1000, .total_steps = 10};
  EXPECT_DOUBLE_EQ(schedule.At(9), 1.0);
}

TEST(LearningRate, EveryShapeIsFoundByItsNameAndBeginsAtThePeak) {
  EXPECT_EQ(LearningRateShapes().size(), 4U);
  for (const LearningRateShape& shape : LearningRateShapes()) {
    EXPECT_EQ(Shape(shape.name), &shape);
    const LearningRateSchedule schedule{
        .shape = &shape, .peak = 0.5, .warmup_steps = 2, .total_steps = 10};
    EXPECT_DOUBLE_EQ(schedule.At(2), 0.5) << shape.name;
  }
  EXPECT_EQ(LearningRateSchedule().shape, Shape("cosine"));
  const auto none = FindLearningRateShape("linear");
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message().find("'linear'"), std::string::npos);
}

}  // namespace
}  // namespace forebay::train
