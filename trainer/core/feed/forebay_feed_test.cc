// What the trainer asks of the client library, without a daemon: stream options, tokens, the
// transform hook and the facts about a data set.
#include "trainer/core/feed/forebay_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/contract/order_token.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> TokenAt(std::uint32_t epoch, std::uint64_t step) {
  PositionToken token;
  token.order.seed = 1;
  token.order.sample_count = 60'000;
  token.global_batch = 64;
  token.next_epoch = EpochId(epoch);
  token.next_step = StepId(step);
  const auto bytes = token.Encode();
  return {bytes.begin(), bytes.end()};
}

TEST(ForebayFeed, FreshRunAsksForTheConfiguredStream) {
  TrainConfig config;
  config.train.seed = 5;
  config.data.order_mode = "block";
  const auto options = TrainingStreamOptions(config, {});
  ASSERT_TRUE(options.has_value()) << options.error().ToString();
  EXPECT_EQ(options->dataset, "fashion-mnist-train");
  EXPECT_EQ(options->global_batch, 64U);
  EXPECT_EQ(options->seed, 5U);
  EXPECT_EQ(options->mode, OrderMode::kBlock);
  EXPECT_EQ(options->tail, TailPolicy::kDrop);
  EXPECT_FALSE(options->resume.has_value());
}

TEST(ForebayFeed, APartialOrderHasTheConfiguredSharesAndExchange) {
  TrainConfig config;
  config.data.order_mode = "partial";
  config.data.canonical_nodes = 8;
  config.data.exchange_fraction = 0.25;
  const auto options = TrainingStreamOptions(config, {});
  ASSERT_TRUE(options.has_value()) << options.error().ToString();
  EXPECT_EQ(options->mode, OrderMode::kPartial);
  EXPECT_EQ(options->canonical_nodes, 8U);
  EXPECT_EQ(options->exchange_millionths, 250'000U);
}

TEST(ForebayFeed, TokenWithinAnEpochIsPassedOn) {
  const auto options = TrainingStreamOptions({}, {2, 17, TokenAt(2, 17)});
  ASSERT_TRUE(options.has_value()) << options.error().ToString();
  ASSERT_TRUE(options->resume.has_value());
  EXPECT_EQ(options->resume->next_epoch, EpochId(2));
  EXPECT_EQ(options->resume->next_step, StepId(17));
}

TEST(ForebayFeed, TokenBehindAnEpochMovesToTheNext) {
  const auto options = TrainingStreamOptions({}, {3, 0, TokenAt(2, 937)});
  ASSERT_TRUE(options.has_value()) << options.error().ToString();
  EXPECT_EQ(options->resume->next_epoch, EpochId(3));
  EXPECT_EQ(options->resume->next_step, StepId(0));
}

TEST(ForebayFeed, TokenOfAnotherPlaceIsRefused) {
  for (const FeedPosition& from : {FeedPosition{2, 18, TokenAt(2, 17)},
                                   FeedPosition{4, 0, TokenAt(2, 937)},
                                   FeedPosition{1, 17, TokenAt(2, 17)}}) {
    const auto options = TrainingStreamOptions({}, from);
    ASSERT_FALSE(options.has_value());
    EXPECT_EQ(options.error().code(), ErrorCode::kFailedPrecondition);
  }
}

TEST(ForebayFeed, DamagedTokenIsRefused) {
  std::vector<std::byte> token = TokenAt(0, 1);
  token[20] ^= std::byte{1};
  EXPECT_FALSE(TrainingStreamOptions({}, {0, 1, token}).has_value());
  token.resize(5);
  EXPECT_FALSE(TrainingStreamOptions({}, {0, 1, token}).has_value());
}

TEST(ForebayFeed, ValidationCoversEverySampleOnAnyNumberOfRanks) {
  TrainConfig config;
  config.evaluation.evaluation_batch = 500;
  const auto one = ValidationStreamOptions(config, 1);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->dataset, "fashion-mnist-test");
  EXPECT_EQ(one->tail, TailPolicy::kShort);
  EXPECT_EQ(one->global_batch, 500U);
  const auto three = ValidationStreamOptions(config, 3);
  ASSERT_TRUE(three.has_value());
  EXPECT_EQ(three->global_batch, 501U);
  config.evaluation.evaluation_batch = 0;
  config.train.global_batch = 48;
  EXPECT_EQ(ValidationStreamOptions(config, 1)->global_batch, 48U);
  // By default an evaluation step has as many samples as a training step.
  EXPECT_EQ(ValidationStreamOptions({}, 1)->global_batch, TrainConfig().train.global_batch);
}

TEST(ForebayFeed, HookWritesWhatTheShareAsksFor) {
  const auto field = [](const char* name, std::vector<std::uint64_t> shape) {
    return FieldSpec{.name = name, .dtype = Dtype::kU8, .source = FieldSource::kExtent,
                     .big_endian = false, .shape = std::move(shape)};
  };
  const std::vector<FieldSpec> fields = {field("images", {9, 9}), field("labels", {1, 9, 9})};
  TrainConfig config;
  const auto plan = [&](bool input, bool target) {
    return MakeFeedTransform(config, {.input = input, .target = target}, fields,
                             Augmentation::Use::kTraining)
        .value();
  };
  EXPECT_FALSE(plan(true, true).any());
  config.augmentation.crop = "5x5";
  const FeedTransform both = plan(true, true);
  EXPECT_EQ(both.target_offset, 32U);
  EXPECT_EQ(both.sample_bytes, 64U);
  EXPECT_EQ(plan(true, false).sample_bytes, 25U);
  EXPECT_EQ(plan(false, true).sample_bytes, 25U);
  EXPECT_EQ(plan(false, true).target_offset, 0U);
  EXPECT_TRUE(plan(false, true).input_field.empty());
  config.data.target_field = "none";
  EXPECT_FALSE(MakeFeedTransform(config, {}, fields, Augmentation::Use::kTraining).has_value());
}

TEST(ForebayFeed, AnAddressThatIsNoneIsATypedError) {
  TrainConfig config;
  config.data.address = "tcp:forebayd.sock";
  const auto source = ForebaySource::Connect(config, 0);
  ASSERT_FALSE(source.has_value());
  EXPECT_THAT(source.error().message(), HasSubstr("tcp:forebayd.sock"));
}

DatasetInfo PhotoSet() {
  DatasetInfo info;
  info.name = "photos";
  info.fields = {{.spec = {.name = "image", .dtype = Dtype::kU8, .shape = {28, 28, 3}}},
                 {.spec = {.name = "label", .dtype = Dtype::kI64, .shape = {}},
                  .constant_names = {"cat", "dog"}},
                 {.spec = {.name = "jpeg", .dtype = Dtype::kBytes, .shape = {}}}};
  return info;
}

TEST(ForebayFeed, FactsAreTheFieldsThatTheConfigurationNames) {
  TrainConfig config;
  config.data.input_field = "image";
  config.data.target_field = "label";
  const auto facts = FactsOf(config, PhotoSet());
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_THAT(facts->input_shape, ::testing::ElementsAre(28, 28, 3));
  EXPECT_EQ(facts->classes, 2U);
}

TEST(ForebayFeed, FieldsThatCannotBeTrainedOnAreRefused) {
  TrainConfig config;
  config.data.target_field = "label";
  config.data.input_field = "images";
  auto facts = FactsOf(config, PhotoSet());
  ASSERT_FALSE(facts.has_value());
  EXPECT_EQ(facts.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(facts.error().message(), HasSubstr("data.input_field = \"images\""));
  EXPECT_THAT(facts.error().message(), HasSubstr("image, label, jpeg"));
  config.data.input_field = "jpeg";
  facts = FactsOf(config, PhotoSet());
  ASSERT_FALSE(facts.has_value());
  EXPECT_THAT(facts.error().message(), HasSubstr("bytes of any length"));
}

}  // namespace
}  // namespace forebay::train
