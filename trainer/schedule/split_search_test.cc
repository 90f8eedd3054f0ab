#include "trainer/schedule/split_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "trainer/schedule/graph_fixture.h"

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
  costs.budget_bytes = 2000;  // the first of two stages: two modules x 500 x 2 in flight
  const auto choice = FindSplit(graph, 2, costs);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->split.begins, (Begins{0, 2}));
}

TEST(SplitSearchTest, NamesTheSmallestBudget) {
  SplitCosts costs;
  costs.budget_bytes = 10;
  costs.parameter_copies = 1;
  const auto choice = FindSplit(EvenChain(4), 2, costs);
  ASSERT_FALSE(choice.has_value());
  EXPECT_EQ(choice.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(choice.error().message().find("3000 bytes"), std::string::npos)
      << choice.error().message();
  costs.budget_bytes = 3000;
  EXPECT_TRUE(FindSplit(EvenChain(4), 2, costs).has_value());
}

TEST(SplitSearchTest, RefusesMoreStagesThanModules) {
  for (const std::uint32_t stages : {0U, 5U}) {
    const auto choice = FindSplit(EvenChain(4), stages, {});
    ASSERT_FALSE(choice.has_value());
    EXPECT_EQ(choice.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace forebay::train
