// Budgets and policies as the user gives them, on plans of small graphs: what is moved, which cut
// is taken, and which figure a refusal names.
#include "trainer/core/config/memory_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;

// Modules that keep 100,000 bytes for each of four micro-batches: enough to be worth a transfer.
StepPlan PlanOf(const StageSplit& split) {
  ModelGraph graph = EvenChain(4);
  for (ModuleProfile& module : graph.modules) {
    module.saved_bytes = 200'000;
    module.output_bytes = 100'000;
  }
  PlanRequest request;
  request.stages = CutIntoStages(graph, split).value();
  request.layout = {.replicas = 1, .stages = split.stages()};
  request.micro_batches = 4;
  request.schedule = FindPipelineSchedule("gpipe").value();
  return BuildPlan(request).value();
}

std::uint64_t PeakOf(const StepPlan& plan) {
  return std::ranges::max(CheckPlan(plan, {}).value().peak_bytes);
}

MemorySettings SettingsOf(const std::string& policy, std::uint64_t budget_bytes,
                          const std::string& host_bytes = "1GiB") {
  return ParseMemory({.budget = std::to_string(budget_bytes),
                      .policy = policy,
                      .host_bytes = host_bytes})
      .value();
}

TEST(MemoryChoice, BytesHaveUnits) {
  EXPECT_EQ(ParseBytes("k", "0"), 0U);
  EXPECT_EQ(ParseBytes("k", "17"), 17U);
  EXPECT_EQ(ParseBytes("k", "3KiB"), 3072U);
  EXPECT_EQ(ParseBytes("k", "200MB"), 200'000'000U);
  EXPECT_EQ(ParseBytes("k", "1024TiB"), 1ULL << 50);
  for (const char* const text : {"", "MB", "-1", "1.5GB", "8 GiB", "8G", "8gib", "1025TiB",
                                 "99999999999999999999", "8GiBs"}) {
    const auto bytes = ParseBytes("memory.budget", text);
    ASSERT_FALSE(bytes.has_value()) << text;
    EXPECT_EQ(bytes.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(bytes.error().message(), HasSubstr("memory.budget"));
  }
}

TEST(MemoryChoice, WithoutBudgetAutoAndKeepLeaveThePlanAlone) {
  EXPECT_FALSE(SettingsOf("auto", 0).active());
  EXPECT_FALSE(SettingsOf("keep", 0).active());
  EXPECT_TRUE(SettingsOf("swap", 0).active());
  EXPECT_TRUE(SettingsOf("recompute", 0).active());
  EXPECT_TRUE(SettingsOf("keep", 1).active());
}

TEST(MemoryChoice, PolicyWithoutBudgetMovesEverything) {
  const StepPlan plan = PlanOf({{0, 2}});
  MemoryChoices swaps(SettingsOf("swap", 0), {}, true);
  EXPECT_EQ(swaps.Choose(plan).value(),
            KeepAll(plan, {.graph = Keeping::kSwap, .output = Keeping::kSwap}));
  EXPECT_THAT(swaps.TakeReasons(), HasSubstr("layout 1 x 2: all that is saved is swapped"));
  const StepPlan moved = MoveSaved(plan, swaps.Choose(plan).value()).value();
  const std::vector<std::uint64_t> host_bytes = CheckPlan(moved, {}).value().peak_host_bytes;
  EXPECT_GT(host_bytes[0], 500'000U);
  MemoryChoices recomputes(SettingsOf("recompute", 0), {}, true);
  EXPECT_EQ(recomputes.Choose(plan).value(), KeepAll(plan, {.graph = Keeping::kRecompute}));
}

TEST(MemoryChoice, TheFirstCutThatMeetsTheBudgetIsTaken) {
  const std::vector<StageSplit> splits = {{.begins = {0, 1}}, {.begins = {0, 2}}};
  const auto least = [](const StageSplit& split) {
    MemoryChoices choices(SettingsOf("recompute", 1), {}, true);
    const std::string text = choices.Choose(PlanOf(split)).error().ToString();
    return std::stoull(text.substr(text.find("still needs ") + 12));
  };
  ASSERT_GT(least(splits[0]), least(splits[1]));
  const auto chosen = [&](std::uint64_t budget) {
    MemoryChoices choices(SettingsOf("recompute", budget), {}, true);
    return choices.ChooseSplit(splits, [](const StageSplit& split) -> Result<StepPlan> {
      return PlanOf(split);
    });
  };
  EXPECT_EQ(chosen(least(splits[0]))->begins, splits[0].begins);
  EXPECT_EQ(chosen(least(splits[0]) - 1)->begins, splits[1].begins);
  EXPECT_EQ(chosen(least(splits[1]))->begins, splits[1].begins);
  const auto refused = chosen(least(splits[1]) - 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().ToString(),
              HasSubstr("still needs " + std::to_string(least(splits[1]))));
}

TEST(MemoryChoice, BudgetIsMetByWhatThePolicyAllows) {
  const StepPlan plan = PlanOf({{0}});
  const std::uint64_t budget = PeakOf(plan) * 7 / 10;
  for (const char* const policy : {"auto", "swap", "recompute"}) {
    MemoryChoices choices(SettingsOf(policy, budget), {}, true);
    const auto keeping = choices.Choose(plan);
    ASSERT_TRUE(keeping.has_value()) << keeping.error().ToString();
    EXPECT_LE(PeakOf(MoveSaved(plan, *keeping).value()), budget) << policy;
    const std::string reason = choices.TakeReasons();
    EXPECT_THAT(reason, HasSubstr("memory, layout 1 x 1: budget"));
    EXPECT_THAT(reason, HasSubstr(policy == std::string("auto") ? "of" : policy));
  }
}

TEST(MemoryChoice, ALayoutIsDecidedOnOnce) {
  MemoryChoices choices(SettingsOf("auto", PeakOf(PlanOf({{0}})) * 7 / 10), {}, true);
  const auto first = choices.Choose(PlanOf({{0}}));
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(choices.TakeReasons().empty());
  EXPECT_EQ(choices.Choose(PlanOf({{0}})).value(), *first);
  EXPECT_TRUE(choices.TakeReasons().empty());
  ASSERT_TRUE(choices.Choose(PlanOf({{0, 2}})).has_value());
  EXPECT_THAT(choices.TakeReasons(), HasSubstr("layout 1 x 2"));
}

TEST(MemoryChoice, TooSmallABudgetNamesTheLeastThatWouldDo) {
  const StepPlan plan = PlanOf({{0}});
  MemoryChoices keeps(SettingsOf("keep", PeakOf(plan) - 1), {}, true);
  const auto refused = keeps.Choose(plan);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().ToString(), HasSubstr("memory.budget, layout 1 x 1"));
  EXPECT_THAT(refused.error().ToString(), HasSubstr(std::to_string(PeakOf(plan))));
  MemoryChoices fits(SettingsOf("keep", PeakOf(plan)), {}, true);
  EXPECT_EQ(fits.Choose(plan).value(), KeepAll(plan, {}));
}

TEST(MemoryChoice, TooLittleRoomOnTheHostIsNamed) {
  const StepPlan plan = PlanOf({{0}});
  for (const std::uint64_t budget : {std::uint64_t{0}, PeakOf(plan) * 7 / 10}) {
    MemoryChoices choices(SettingsOf("swap", budget, "50KB"), {}, true);
    const auto refused = choices.Choose(plan);
    ASSERT_FALSE(refused.has_value()) << budget;
    EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(refused.error().ToString(), HasSubstr("memory.host_bytes = 50000"));
  }
}

TEST(MemoryChoice, AnEngineThatCannotSwapRecomputes) {
  const StepPlan plan = PlanOf({{0}});
  MemoryChoices either(SettingsOf("auto", PeakOf(plan) * 7 / 10), {}, false);
  ASSERT_TRUE(either.Choose(plan).has_value());
  EXPECT_THAT(either.TakeReasons(), HasSubstr("stage 0: recomputes"));
  MemoryChoices swaps(SettingsOf("swap", 0), {}, false);
  EXPECT_EQ(swaps.Choose(plan).error().code(), ErrorCode::kUnimplemented);
}

}  // namespace
}  // namespace forebay::train
