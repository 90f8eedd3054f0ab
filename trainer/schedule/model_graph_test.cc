// Cuts of small chains with skips: which edges there are, what stages cost, and which cuts are
// refused.
#include "trainer/schedule/model_graph.h"

#include <gtest/gtest.h>

#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train {
namespace {

TEST(ModelGraphTest, ACutSumsItsModules) {
  const auto cut = CutIntoStages(EvenChain(5), {{0, 2}});
  ASSERT_TRUE(cut.has_value());
  ASSERT_EQ(cut->stages.size(), 2U);
  EXPECT_EQ(cut->stages[0].forward_ns, 2'000'000U);
  EXPECT_EQ(cut->stages[1].backward_ns, 6'000'000U);
  EXPECT_EQ(cut->stages[1].parameter_bytes, 3000U);
  EXPECT_EQ(cut->stages[0].saved_bytes, 900U);  // the last output is sent, not saved
  EXPECT_EQ(cut->input_bytes, 64U);
  ASSERT_EQ(cut->edges.size(), 1U);
  EXPECT_EQ(cut->edges[0].from_module, 1U);
  EXPECT_EQ(cut->edges[0].bytes, 100U);
}

TEST(ModelGraphTest, ASkipOverAStageGoesStraight) {
  const auto cut = CutIntoStages(UNetChain(), {{0, 2, 3}});
  ASSERT_TRUE(cut.has_value());
  // 0 -> 1: module 1's output; 0 -> 2: modules 0 and 1 for the skips; 1 -> 2: module 2's.
  ASSERT_EQ(cut->edges.size(), 4U);
  EXPECT_EQ(cut->edges[0].to_stage, 1U);
  EXPECT_EQ(cut->edges[1].to_stage, 2U);
  EXPECT_EQ(cut->edges[1].from_module, 0U);
  EXPECT_EQ(cut->edges[2].from_module, 1U);
  EXPECT_EQ(cut->edges[3].from_stage, 1U);
}

TEST(ModelGraphTest, ATensorIsSentToAStageOnce) {
  ModelGraph graph = EvenChain(4);
  graph.skips = {{0, 2}};
  const auto cut = CutIntoStages(graph, {{0, 1}});
  ASSERT_TRUE(cut.has_value());
  ASSERT_EQ(cut->edges.size(), 1U);
  EXPECT_EQ(cut->edges[0].to_modules, (std::vector<std::uint32_t>{1, 2}));
}

TEST(ModelGraphTest, ThreeUsersAreServedApart) {
  ModelGraph graph = EvenChain(4);
  graph.skips = {{0, 2}, {0, 3}};
  const auto cut = CutIntoStages(graph, {{0, 1}});
  ASSERT_TRUE(cut.has_value());
  ASSERT_EQ(cut->edges.size(), 3U);
  EXPECT_EQ(cut->edges[1].to_modules, (std::vector<std::uint32_t>{2}));
}

TEST(ModelGraphTest, ASkipWithinAStageCrossesNothing) {
  ModelGraph graph = EvenChain(4);
  graph.skips = {{0, 2}};
  const auto cut = CutIntoStages(graph, {{0, 3}});
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->edges.size(), 1U);
}

TEST(ModelGraphTest, ScratchHoldsGradientsThatWaitForTheirModule) {
  // Modules 0 and 1 also feed 4 and 3; outputs of 100 bytes, graphs of 400.
  ModelGraph graph = UNetChain();
  for (ModuleProfile& module : graph.modules) module.backward_scratch_bytes = 250;
  const StageCost whole = CutIntoStages(graph, {{0}}).value().stages[0];
  EXPECT_EQ(whole.BackwardScratch(4), 250U);
  EXPECT_EQ(whole.BackwardScratch(3), 250U + 100 + 100);  // its own and that of 0
  EXPECT_EQ(whole.BackwardScratch(2), 250U + 100 + 200);
  EXPECT_EQ(whole.BackwardScratch(0), 250U + 100);
  EXPECT_EQ(whole.BackwardScratch(UINT32_MAX), 250U);
  // Gradients that leave the stage are buffers of the plan: of 0 since B 4, of 1 since B 3.
  const StageCost last = CutIntoStages(graph, {{0, 2}}).value().stages[1];
  EXPECT_EQ(last.BackwardScratch(4), 250U - 100);
  EXPECT_EQ(last.BackwardScratch(3), 250U + 100 - 100);
  EXPECT_EQ(last.BackwardScratch(2), 250U + 100);
  EXPECT_EQ(last.BackwardScratch(UINT32_MAX), 250U - 200);
}

TEST(ModelGraphTest, ScratchOfAPassIsLessWhereOtherModulesHoldNothingYet) {
  ModelGraph graph = EvenChain(3);
  graph.modules[0].forward_scratch_bytes = 1200;
  graph.modules[2].forward_scratch_bytes = 100;
  const StageCost stage = CutIntoStages(graph, {{0}}).value().stages[0];
  EXPECT_EQ(stage.ForwardScratch(0), 1200U);
  EXPECT_EQ(stage.ForwardScratch(UINT32_MAX), 1200U - 2 * 500);
}

TEST(ModelGraphTest, RefusesAnEmptyModel) {
  const Status status = CheckGraph({});
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
}

TEST(ModelGraphTest, RefusesSkipsThatDoNotLeadForward) {
  for (const SkipEdge skip : {SkipEdge{2, 1}, SkipEdge{1, 1}, SkipEdge{1, 2}, SkipEdge{1, 5},
                              SkipEdge{9, 12}}) {
    ModelGraph graph = EvenChain(5);
    graph.skips = {skip};
    const Status status = CheckGraph(graph);
    ASSERT_FALSE(status.has_value()) << skip.from << " -> " << skip.to;
    EXPECT_NE(status.error().message().find("skip edge"), std::string::npos);
  }
}

TEST(ModelGraphTest, RefusesASkipThatIsThereTwice) {
  ModelGraph graph = EvenChain(5);
  graph.skips = {{0, 2}, {0, 2}};
  const Status status = CheckGraph(graph);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message().find("twice"), std::string::npos);
}

TEST(ModelGraphTest, RefusesSplitsWithoutModules) {
  for (const StageSplit& split :
       {StageSplit{}, StageSplit{{1}}, StageSplit{{0, 0}}, StageSplit{{0, 3, 2}},
        StageSplit{{0, 5}}, StageSplit{{0, 9}}}) {
    const auto cut = CutIntoStages(EvenChain(5), split);
    ASSERT_FALSE(cut.has_value());
    EXPECT_EQ(cut.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace forebay::train
