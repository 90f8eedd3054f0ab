#include "trainer/schedule/layout_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "trainer/schedule/graph_fixture.h"

namespace forebay::train {
namespace {

PlannerRequest RequestOf(std::uint32_t ranks, std::uint32_t micro_batches) {
  PlannerRequest request;
  request.graph = EvenChain(8);
  request.ranks = ranks;
  request.micro_batches = micro_batches;
  return request;
}

TEST(LayoutPlannerTest, ReplicasWinWhereGradientsAreCheap) {
  const auto plan = PlanLayouts(RequestOf(4, 8));
  ASSERT_TRUE(plan.has_value());
  // 4 x 1; 2 x 2 and 1 x 4 under both schedules.
  EXPECT_EQ(plan->choices.size(), 5U);
  EXPECT_EQ(plan->choices[0].layout, (Layout{.replicas = 4, .stages = 1}));
  EXPECT_TRUE(plan->refused.empty());
  for (std::size_t at = 1; at < plan->choices.size(); ++at) {
    EXPECT_LE(plan->choices[at - 1].simulation.step_ns, plan->choices[at].simulation.step_ns);
  }
}

TEST(LayoutPlannerTest, StagesWinWhereGradientsAreDear) {
  PlannerRequest request = RequestOf(2, 16);
  for (ModuleProfile& module : request.graph.modules) module.parameter_bytes = 100'000'000;
  request.costs.collective.bytes_per_ns = 1;
  const auto plan = PlanLayouts(request);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->choices[0].layout, (Layout{.replicas = 1, .stages = 2}));
}

TEST(LayoutPlannerTest, EqualTimesGoToTheSmallerPeak) {
  PlannerRequest request = RequestOf(2, 8);
  request.costs.message.bytes_per_ns = 1e12;
  const auto plan = PlanLayouts(request);
  ASSERT_TRUE(plan.has_value());
  const auto piped = std::ranges::find_if(plan->choices, [](const LayoutChoice& choice) {
    return choice.layout.stages == 2;
  });
  ASSERT_NE(piped, plan->choices.end());
  EXPECT_EQ(piped->schedule, Schedule::k1f1b);
}

TEST(LayoutPlannerTest, TheBudgetRulesLayoutsOut) {
  PlannerRequest request = RequestOf(2, 8);
  for (ModuleProfile& module : request.graph.modules) module.saved_bytes = 1000;
  // The whole model: 8,000 x (weights, momentum, three gradients) and 8,000 saved.
  request.budget_bytes = 40'000;
  const auto plan = PlanLayouts(request);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->choices.size(), 1U);
  EXPECT_EQ(plan->choices[0].layout.stages, 2U);
  EXPECT_EQ(plan->choices[0].schedule, Schedule::k1f1b);
  ASSERT_EQ(plan->refused.size(), 2U);
  EXPECT_NE(plan->refused[0].find("2 replicas x 1 stages"), std::string::npos);
}

TEST(LayoutPlannerTest, NothingFits) {
  PlannerRequest request = RequestOf(2, 8);
  request.budget_bytes = 100;
  const auto plan = PlanLayouts(request);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(plan.error().message().find("smallest budget"), std::string::npos);
}

TEST(LayoutPlannerTest, SaysWhyALayoutIsIllegal) {
  const auto plan = PlanLayouts(RequestOf(3, 8));  // 3 replicas of 8 micro-batches
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->refused.size(), 1U);
  EXPECT_NE(plan->refused[0].find("do not divide"), std::string::npos);
  const auto tight = PlanLayouts(RequestOf(16, 8));
  ASSERT_TRUE(tight.has_value());
  EXPECT_NE(tight->refused[0].find("at least one for each"), std::string::npos);
}

TEST(LayoutPlannerTest, TextNamesTheBestWithReasons) {
  PlannerRequest request = RequestOf(2, 8);
  request.budget_bytes = 1'000'000;
  const auto plan = PlanLayouts(request);
  ASSERT_TRUE(plan.has_value());
  const std::string text = ToText(*plan, 2);
  EXPECT_EQ(text.find("1. 2 replicas x 1 stages"), 0U) << text;
  EXPECT_NE(text.find("bubble"), std::string::npos);
  EXPECT_NE(text.find("slowest stage 0 (m0..m7)"), std::string::npos) << text;
  EXPECT_EQ(text.find("3."), std::string::npos);
}

TEST(LayoutPlannerTest, RefusesNothingToPlan) {
  EXPECT_FALSE(PlanLayouts(RequestOf(0, 8)).has_value());
  PlannerRequest schedules = RequestOf(2, 8);
  schedules.schedules.clear();
  EXPECT_FALSE(PlanLayouts(schedules).has_value());
  PlannerRequest graph = RequestOf(2, 8);
  graph.graph.modules.clear();
  EXPECT_FALSE(PlanLayouts(graph).has_value());
}

}  // namespace
}  // namespace forebay::train
