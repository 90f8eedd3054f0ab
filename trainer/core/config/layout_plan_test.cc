// Which layouts and micro-batches a configuration means, at which step a switch is due, and what
// the refusals name.
#include "trainer/core/config/layout_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "trainer/core/feed/layout_feeds.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;

TEST(LayoutPlan, RanksOverStagesAreReplicas) {
  TrainConfig config;
  config.layout.stages = 2;
  const auto plan = MakeLayoutPlan(config, 4);
  ASSERT_TRUE(plan.has_value()) << plan.error().ToString();
  EXPECT_EQ(plan->first, (Layout{.replicas = 2, .stages = 2}));
  EXPECT_EQ(plan->micro_batch, 32U);  // half of 64 samples
  EXPECT_EQ(plan->MicroBatchesOf(plan->first), 2U);
  EXPECT_TRUE(plan->split.empty());
  EXPECT_EQ(plan->Layouts().size(), 1U);
}

TEST(LayoutPlan, MicroBatchFitsTheSmallestShareOfTheRun) {
  TrainConfig config;
  config.layout.stages = 4;
  config.layout.switches = "epoch 1: 4x1; step 7: 2 x 2";
  const auto plan = MakeLayoutPlan(config, 4);
  ASSERT_TRUE(plan.has_value()) << plan.error().ToString();
  EXPECT_EQ(plan->micro_batch, 16U);
  EXPECT_EQ(plan->MicroBatchesOf(plan->first), 4U);
  EXPECT_EQ(plan->Layouts().size(), 3U);
}

// Ten steps an epoch.
TEST(LayoutPlan, LastSwitchBehindAPositionHolds) {
  TrainConfig config;
  config.layout.switches = "epoch 2: 2x1; step 15: 1x2";
  const LayoutPlan plan = MakeLayoutPlan(config, 2).value();
  const Layout replicas{.replicas = 2, .stages = 1};
  const Layout stages{.replicas = 1, .stages = 2};
  EXPECT_EQ(plan.At({0, 0, 0}), replicas);
  EXPECT_EQ(plan.At({1, 4, 14}), replicas);
  EXPECT_EQ(plan.At({1, 5, 15}), stages);
  EXPECT_EQ(plan.At({1, 9, 19}), stages);
  EXPECT_EQ(plan.At({2, 0, 20}), replicas);
  EXPECT_EQ(plan.At({7, 3, 73}), replicas);
}

TEST(LayoutPlan, ExplicitSplitIsTaken) {
  TrainConfig config;
  config.layout.stages = 2;
  config.layout.split = "0, 3";
  EXPECT_EQ(MakeLayoutPlan(config, 2)->split, (std::vector<std::uint32_t>{0, 3}));
}

TEST(LayoutPlan, ErrorsNameKeyValueAndWhatIsAllowed) {
  struct Wrong {
    std::function<void(LayoutConfig&)> change;
    std::vector<std::string> says;
  };
  const std::vector<Wrong> wrongs = {
      {[](LayoutConfig& l) { l.stages = 3; }, {"layout.stages = 3", "4 ranks", "1, 2, 4"}},
      {[](LayoutConfig& l) { l.replicas = 2; }, {"layout.replicas = 2", "must be 4"}},
      {[](LayoutConfig& l) { l.micro_batch = 32; }, {"layout.micro_batch = 32", "16, 8, 4, 2"}},
      {[](LayoutConfig& l) { l.micro_batch = 5; }, {"layout.micro_batch = 5", "power of two"}},
      {[](LayoutConfig& l) { l.switches = "step 0: 4x1"; }, {"layout.switch", "step 0: 4x1"}},
      {[](LayoutConfig& l) { l.switches = "day 2: 4x1"; }, {"\"step N: RxS\""}},
      {[](LayoutConfig& l) { l.switches = "step 2"; }, {"\"step N: RxS\""}},
      {[](LayoutConfig& l) { l.switches = "step 2: 4x0"; }, {"\"step N: RxS\""}},
      {[](LayoutConfig& l) { l.switches = "step 2: 2x1"; }, {"layout.switch", "4 ranks"}},
      {[](LayoutConfig& l) { l.switches = "step 2: 65536x65537"; }, {"4 ranks"}},
      {[](LayoutConfig& l) { l.split = "1,2"; }, {"layout.split = \"1,2\"", "ascending from 0"}},
      {[](LayoutConfig& l) { l.split = "0,2,2"; }, {"ascending from 0"}},
      {[](LayoutConfig& l) { l.split = "0,x"; }, {"ascending from 0"}},
      {[](LayoutConfig& l) { l.split = "0,2"; }, {"2 stages", "no layout"}},
  };
  for (const Wrong& wrong : wrongs) {
    TrainConfig config;
    wrong.change(config.layout);
    const auto plan = MakeLayoutPlan(config, 4);
    ASSERT_FALSE(plan.has_value()) << wrong.says.front();
    EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidArgument);
    for (const std::string& text : wrong.says) {
      EXPECT_THAT(plan.error().message(), HasSubstr(text));
    }
  }
}

TEST(LayoutPlan, OneReplicaTakesAnyNumberOfMicroBatches) {
  TrainConfig config;
  config.train.global_batch = 60;
  config.layout.stages = 2;
  config.layout.micro_batch = 5;
  const LayoutPlan plan = MakeLayoutPlan(config, 2).value();
  EXPECT_EQ(plan.MicroBatchesOf(plan.first), 12U);
  // Two replicas would have six each.
  config.layout.switches = "epoch 1: 2x1";
  EXPECT_FALSE(MakeLayoutPlan(config, 2).has_value());
}

TEST(LayoutPlan, MicroBatchesMayFollowTheLayout) {
  TrainConfig config;
  EXPECT_EQ(LayoutDependence(config), "");
  config.layout.micro_batches = "per_layout";
  config.layout.switches = "epoch 3: 1x2";
  const auto unsized = MakeLayoutPlan(config, 2);
  ASSERT_FALSE(unsized.has_value());
  EXPECT_THAT(unsized.error().message(), HasSubstr("layout.micro_batch = 0"));
  config.layout.micro_batch = 4;
  const LayoutPlan plan = MakeLayoutPlan(config, 2).value();
  const Layout pipeline = {.replicas = 1, .stages = 2};
  EXPECT_EQ(plan.MicroBatchOf(plan.first), 32U);  // half of 64 samples
  EXPECT_EQ(plan.MicroBatchesOf(plan.first), 2U);
  EXPECT_EQ(plan.MicroBatchOf(pipeline), 4U);
  EXPECT_EQ(plan.MicroBatchesOf(pipeline), 16U);
  EXPECT_EQ(plan.Text(), "2 x 1 of 32, 1 x 2 of 4 from epoch 3");
  config.train.normalisation = "per_worker";
  EXPECT_EQ(LayoutDependence(config), "layout.micro_batches, train.normalisation");
  EXPECT_EQ(PlanDependence(config), LayoutDependence(config));
}

TEST(LayoutPlan, FastSumsMakeWeightsDependOnTheLayout) {
  TrainConfig config;
  EXPECT_EQ(LayoutDependence(config), "");
  config.train.exactness = "fast";
  EXPECT_EQ(LayoutDependence(config), "train.exactness");
  EXPECT_EQ(PlanDependence(config), "");  // resumed under other layouts with a warning
  config.train.normalisation = "per_worker";
  EXPECT_EQ(LayoutDependence(config), "train.exactness, train.normalisation");
}

TEST(LayoutPlan, InputsGoToFirstStagesTargetsToLast) {
  const Layout layout{.replicas = 2, .stages = 3};
  const FeedShare first = ShareOf(layout, 3);
  EXPECT_EQ(first.replica, 1U);
  EXPECT_EQ(first.replicas, 2U);
  EXPECT_TRUE(first.input && !first.target);
  EXPECT_FALSE(ShareOf(layout, 1).any());
  const FeedShare last = ShareOf(layout, 2);
  EXPECT_EQ(last.replica, 0U);
  EXPECT_TRUE(!last.input && last.target);
  const FeedShare both = ShareOf({.replicas = 2, .stages = 1}, 1);
  EXPECT_TRUE(both.input && both.target);
}

}  // namespace
}  // namespace forebay::train
