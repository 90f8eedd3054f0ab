// Cuts that the search finds, against exhaustive search on small chains, with skips, messages and
// budgets.
#include "trainer/schedule/split_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train {
namespace {

using Begins = std::vector<std::uint32_t>;

TEST(SplitSearchTest, EvenModulesAreSharedEvenly) {
  const auto choice = FindSplit(EvenChain(6), 3, {});
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->split.begins, (Begins{0, 2, 4}));
  EXPECT_EQ(choice->slowest_ns, 6'000'000U);
}

TEST(SplitSearchTest, AnExpensiveModuleGetsAStageOfItsOwn) {
  ModelGraph graph = EvenChain(5);
  graph.modules[0].forward_ns = 9'000'000;
  const auto choice = FindSplit(graph, 2, {});
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->split.begins, (Begins{0, 1}));
  EXPECT_EQ(choice->slowest_stage, 1U);
}

TEST(SplitSearchTest, AmongEqualsTheNarrowCut) {
  ModelGraph graph = EvenChain(5);
  for (ModuleProfile& module : graph.modules) module.output_bytes = 1000;
  graph.modules[1].output_bytes = 10;  // 2 + 3 modules, as well as 3 + 2, take 9 ms
  const auto choice = FindSplit(graph, 2, {});
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->split.begins, (Begins{0, 2}));
}

TEST(SplitSearchTest, SkipTrafficMovesTheCut) {
  // Cut in the middle, the large skip 2 -> 4 crosses; one to the side, it does not.
  ModelGraph graph = EvenChain(6);
  graph.skips = {{2, 4}};
  graph.modules[2].output_bytes = 1'000'000;
  SplitCosts costs;
  costs.message_ns_per_byte = 10;
  const auto choice = FindSplit(graph, 2, costs);
  ASSERT_TRUE(choice.has_value());
  EXPECT_TRUE(choice->split.begins == (Begins{0, 2}) || choice->split.begins == (Begins{0, 5}))
      << choice->split.begins[1];
}

TEST(SplitSearchTest, MatchesExhaustiveSearch) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 200; ++round) {
    const ModelGraph graph = RandomGraph(random);
    const auto count = static_cast<std::uint32_t>(graph.modules.size());
    if (count < 3) continue;
    std::uint64_t best = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t first = 1; first + 1 < count; ++first) {
      for (std::uint32_t second = first + 1; second < count; ++second) {
        const StageGraph cut = CutIntoStages(graph, {{0, first, second}}).value();
        std::uint64_t slowest = 0;
        for (const StageCost& stage : cut.stages) {
          slowest = std::max(slowest, stage.forward_ns + stage.backward_ns);
        }
        best = std::min(best, slowest);
      }
    }
    const auto choice = FindSplit(graph, 3, {});
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->slowest_ns, best);
  }
}

TEST(SplitSearchTest, MemoryOutweighsSpeed) {
  // Earlier stages hold more micro-batches, so the first one gets fewer modules.
  ModelGraph graph = EvenChain(6);
  for (ModuleProfile& module : graph.modules) module.parameter_bytes = 0;
  SplitCosts costs;
  costs.micro_batches = 8;
  // Two modules of the first of two stages, 2 in flight: 2,000. Four of the second: 2,100 with what
  // arrives.
  costs.budget_bytes = 2100;
  const auto choice = FindSplit(graph, 2, costs);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->split.begins, (Begins{0, 2}));
}

TEST(SplitSearchTest, EveryStageHoldsWhatItsScheduleSays) {
  SplitCosts costs;
  costs.micro_batches = 8;
  costs.parameter_copies = 1;
  costs.schedule = FindPipelineSchedule("gpipe").value();
  costs.budget_bytes = 10;
  const auto choice = FindSplit(EvenChain(4), 2, costs);
  ASSERT_FALSE(choice.has_value());
  // As in NamesTheSmallestBudget, but what is saved and arrives is held for 8 micro-batches.
  EXPECT_NE(choice.error().message().find("10800 bytes"), std::string::npos)
      << choice.error().message();
}

TEST(SplitSearchTest, NamesTheSmallestBudget) {
  SplitCosts costs;
  costs.budget_bytes = 10;
  costs.parameter_copies = 1;
  const auto choice = FindSplit(EvenChain(4), 2, costs);
  ASSERT_FALSE(choice.has_value());
  EXPECT_EQ(choice.error().code(), ErrorCode::kResourceExhausted);
  // Two modules' parameters, what they save, and what arrives.
  EXPECT_NE(choice.error().message().find("3100 bytes"), std::string::npos)
      << choice.error().message();
  costs.budget_bytes = 3100;
  EXPECT_TRUE(FindSplit(EvenChain(4), 2, costs).has_value());
}

TEST(SplitSearchTest, ReductionsTakeMemoryWhereReplicasAre) {
  SplitCosts costs;
  costs.parameter_copies = 2;
  costs.replicas = 4;
  ModelGraph graph = EvenChain(2);
  for (ModuleProfile& module : graph.modules) module.saved_bytes = 0;
  costs.budget_bytes = 2755;  // 2 x 1,000 bytes, and 3 times the largest fourth of 250 floats
  EXPECT_FALSE(FindSplit(graph, 2, costs).has_value());
  costs.budget_bytes = 2756;
  EXPECT_TRUE(FindSplit(graph, 2, costs).has_value());
}

// Modules 0 to 2 have the time, modules 3 to 5 the parameters.
ModelGraph HeavyTail() {
  ModelGraph graph = EvenChain(6);
  for (std::uint32_t module = 0; module < 6; ++module) {
    if (module >= 3) graph.modules[module].forward_ns = 1000;
    if (module >= 3) graph.modules[module].backward_ns = 2000;
    if (module >= 3) graph.modules[module].parameter_bytes = 10'000;
  }
  return graph;
}

TEST(SplitSearchTest, UnderABudgetTheFastestOfThoseWithinComesFirst) {
  SplitCosts costs;
  costs.parameter_copies = 3;
  const Begins fastest = FindSplit(HeavyTail(), 2, costs)->split.begins;
  EXPECT_EQ(fastest, (Begins{0, 2}));  // 92,500 bytes on the second stage
  costs.budget_bytes = 80'000;
  const auto splits = FindSplitsWithin(HeavyTail(), 2, costs);
  ASSERT_TRUE(splits.has_value());
  EXPECT_EQ(splits->front().begins, (Begins{0, 4}));
}

TEST(SplitSearchTest, WhereNothingIsWithinTheBudgetTheSmallestIsTried) {
  SplitCosts costs;
  costs.parameter_copies = 3;
  costs.budget_bytes = 10;
  const auto splits = FindSplitsWithin(HeavyTail(), 2, costs);
  ASSERT_TRUE(splits.has_value());
  ASSERT_EQ(splits->size(), 1U);
  EXPECT_EQ(splits->front().begins, (Begins{0, 4}));
}

TEST(SplitSearchTest, WhatIsSavedCountsLessWhereItMayBeMoved) {
  ModelGraph graph = HeavyTail();
  for (ModuleProfile& module : graph.modules) module.saved_bytes = 20'000;
  SplitCosts costs;
  costs.parameter_copies = 1;
  costs.micro_batches = 8;
  costs.budget_bytes = 60'000;
  const auto splits = FindSplitsWithin(graph, 2, costs);
  ASSERT_TRUE(splits.has_value());
  // Two of the first stage's modules would keep 80,000; moved, the fastest cut fits.
  EXPECT_EQ(splits->front().begins, (Begins{0, 2}));
  EXPECT_FALSE(FindSplit(graph, 2, costs).has_value());
}

TEST(SplitSearchTest, RefusesMoreStagesThanModules) {
  for (const std::uint32_t stages : {0U, 5U}) {
    const auto choice = FindSplit(EvenChain(4), stages, {});
    ASSERT_FALSE(choice.has_value());
    EXPECT_EQ(choice.error().code(), ErrorCode::kInvalidArgument);
    const auto within = FindSplitsWithin(EvenChain(4), stages, {});
    ASSERT_FALSE(within.has_value());
    EXPECT_EQ(within.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace forebay::train
