// Which modes are compared, how they are written, and which one is chosen.
#include "client/cli/tune/mode_choice.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::cli {
namespace {

using ::testing::HasSubstr;

constexpr ModeSetting kSetting = {
    .samples = 1'000'000, .extent_samples = 300, .global_batch = 64, .nodes = 4};

ModeAssessment Assessment(OrderMode mode, double seconds, const EntropyLoss& loss) {
  ModeAssessment assessment;
  assessment.shape.mode = mode;
  assessment.cost.seconds = seconds;
  assessment.loss = loss;
  return assessment;
}

TEST(UsualModesTest, AreValidDifferentAndBeginWithGlobal) {
  const std::vector<OrderShape> modes = UsualModes(kSetting);
  ASSERT_FALSE(modes.empty());
  EXPECT_EQ(modes[0], OrderShape{});
  std::set<std::string> texts;
  for (const OrderShape& shape : modes) {
    const OrderSpec spec = {.sample_count = kSetting.samples, .shape = shape};
    EXPECT_TRUE(spec.Validate()) << ModeText(shape);
    EXPECT_TRUE(texts.insert(ModeText(shape)).second) << ModeText(shape) << " twice";
  }
  EXPECT_THAT(texts, ::testing::IsSupersetOf({"partial(1)", "partial(0.05)", "block(300, 16)",
                                              "block(4800, 64)"}));
}

TEST(UsualModesTest, OneNodeHasNobodyToExchangeWith) {
  ModeSetting alone = kSetting;
  alone.nodes = 1;
  for (const OrderShape& shape : UsualModes(alone)) EXPECT_NE(shape.mode, OrderMode::kPartial);
}

TEST(UsualModesTest, WindowsOfTheWholeSetAreLeftOut) {
  ModeSetting small = kSetting;
  small.samples = 300 * 17;
  for (const OrderShape& shape : UsualModes(small)) {
    EXPECT_TRUE(shape.mode != OrderMode::kBlock || shape.window_runs < 17) << ModeText(shape);
  }
}

TEST(ParseModeTest, ReadsWhatItDocuments) {
  EXPECT_EQ(*ParseMode("global", kSetting), OrderShape{});
  EXPECT_EQ(ParseMode("sequential", kSetting)->mode, OrderMode::kSequential);
  const auto block = ParseMode("block:4096:16", kSetting);
  ASSERT_TRUE(block);
  EXPECT_EQ(ModeText(*block), "block(4096, 16)");
  const auto partial = ParseMode("partial:0.25", kSetting);
  ASSERT_TRUE(partial);
  EXPECT_EQ(partial->block_samples, 300U) << "an extent";
  EXPECT_EQ(partial->exchange_millionths, 250'000U);
  EXPECT_EQ(partial->canonical_nodes, 4U);
  EXPECT_EQ(partial->global_batch, 64U);
  EXPECT_EQ(ParseMode("partial:0:7", kSetting)->block_samples, 7U);
}

TEST(ParseModeTest, RefusesEverythingElse) {
  for (const char* text : {"", "globe", "global:1", "block", "block:4", "block:4:", "block:4:x",
                           "block:4:2:1", "block:-4:2", "partial", "partial:x", "partial:0.1:",
                           "partial:0.1:4:2", "weighted", "sequential:2"}) {
    const auto mode = ParseMode(text, kSetting);
    ASSERT_FALSE(mode) << text;
    EXPECT_EQ(mode.error().code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(mode.error().message(), HasSubstr("'" + std::string(text) + "'"));
  }
  for (const char* text : {"partial:1.5", "partial:-0.1", "partial:nan"}) {
    EXPECT_EQ(ParseMode(text, kSetting).error().code(), ErrorCode::kOutOfRange) << text;
  }
}

TEST(ModeTextTest, SettingsCanBePasted) {
  const OrderShape block = *ParseMode("block:4096:16", kSetting);
  EXPECT_EQ(TrainerFlags(block), "--order-mode block --block-samples 4096 --window-runs 16");
  EXPECT_THAT(StreamOptionsText(block), HasSubstr("options.window_runs = 16;"));
  const OrderShape partial = *ParseMode("partial:0.1:32", kSetting);
  EXPECT_EQ(TrainerFlags(partial),
            "--order-mode partial --block-samples 32 --canonical-nodes 4 "
            "--exchange-fraction 0.1");
  EXPECT_THAT(StreamOptionsText(partial), HasSubstr("options.exchange_millionths = 100000;"));
  EXPECT_EQ(TrainerFlags({}), "--order-mode global");
  EXPECT_THAT(StreamOptionsText(*ParseMode("sequential", kSetting)), HasSubstr("kSequential;"));
}

TEST(ChooseModeTest, TakesTheCheapestWithinBothTolerances) {
  const std::vector<ModeAssessment> modes = {
      Assessment(OrderMode::kGlobal, 10, {}),
      Assessment(OrderMode::kPartial, 6, {.batch = 0, .part = 0.2}),
      Assessment(OrderMode::kBlock, 5, {.batch = 0.01, .part = 0.03}),
      Assessment(OrderMode::kBlock, 1, {.batch = 0.5, .part = 0.5})};
  EXPECT_EQ(ChooseMode(modes, {.batch = 0.02, .part = 0.2}).index, 2U);
  EXPECT_EQ(ChooseMode(modes, {.batch = 0.02, .part = 0.03}).index, 2U) << "the bound is allowed";
  EXPECT_EQ(ChooseMode(modes, {.batch = 0.02, .part = 0.02}).index, 0U);
  EXPECT_EQ(ChooseMode(modes, {.batch = 0.005, .part = 0.2}).index, 1U);
  EXPECT_EQ(ChooseMode(modes, {.batch = 0, .part = 0}).index, 0U);
  EXPECT_EQ(ChooseMode(modes, {.batch = 1, .part = 1}).index, 3U);
  EXPECT_THAT(ReasonOf(modes, {.index = 2}), HasSubstr("takes 5 s"));
  EXPECT_THAT(ReasonOf(modes, {.index = 2}), HasSubstr("lose 1 % of their class entropy"));
  EXPECT_THAT(ReasonOf(modes, {}), HasSubstr("costs less"));
}

TEST(ChooseModeTest, OfEqualCostsTheFirst) {
  const std::vector<ModeAssessment> modes = {Assessment(OrderMode::kGlobal, 1.005, {}),
                                             Assessment(OrderMode::kBlock, 1, {})};
  EXPECT_EQ(ChooseMode(modes, {}).index, 0U);
}

TEST(ChooseModeTest, ARefusedModeIsNotTakenEvenIfItIsTheCheapest) {
  std::vector<ModeAssessment> modes = {
      Assessment(OrderMode::kGlobal, 1, {}), Assessment(OrderMode::kPartial, 1, {}),
      Assessment(OrderMode::kBlock, 5, {.batch = 0.01, .part = 0.03})};
  modes[0].is_refused = modes[1].is_refused = true;
  const ModeChoice choice = ChooseMode(modes, {.batch = 0.02, .part = 0.2});
  EXPECT_EQ(choice.index, 2U);
  EXPECT_TRUE(choice.mixes_well);
  EXPECT_THAT(ReasonOf(modes, choice), HasSubstr("a daemon refuses global"));
}

TEST(ChooseModeTest, IfNoAcceptedModeMixesWellTheCheapestIsNamedWithItsLoss) {
  std::vector<ModeAssessment> modes = {
      Assessment(OrderMode::kGlobal, 1, {}),
      Assessment(OrderMode::kBlock, 9, {.batch = 0.1, .part = 0.1}),
      Assessment(OrderMode::kBlock, 5, {.batch = 0.3, .part = 0.4})};
  modes[0].is_refused = true;
  const ModeChoice choice = ChooseMode(modes, {.batch = 0.02, .part = 0.2});
  EXPECT_EQ(choice.index, 2U);
  EXPECT_FALSE(choice.mixes_well);
  EXPECT_THAT(ReasonOf(modes, choice), HasSubstr("no mode that a daemon accepts mixes well"));
  EXPECT_THAT(ReasonOf(modes, choice), HasSubstr("lose 30 %"));
}

}  // namespace
}  // namespace forebay::cli
