// From a configuration and the shape of a data set to a model: which source wins, where channels
// are, and what is refused.
#include "trainer/models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace forebay::train::model_config_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

SampleFacts Stored(std::vector<std::uint64_t> shape, std::uint64_t classes = 0) {
  return {.input_shape = std::move(shape), .classes = classes};
}

TrainConfig ConfigOf(const std::string& architecture, const std::string& settings = "") {
  TrainConfig config;
  config.model.architecture = architecture;
  config.model.settings = settings;
  return config;
}

void ExpectRefused(const TrainConfig& config, const SampleFacts& facts,
                   const std::vector<std::string>& words) {
  const auto configured = ConfigureModel(config, facts);
  ASSERT_FALSE(configured.has_value()) << words.front();
  EXPECT_EQ(configured.error().code(), ErrorCode::kInvalidArgument);
  for (const std::string& word : words) {
    EXPECT_THAT(configured.error().ToString(), HasSubstr(word));
  }
}

TEST(ModelConfig, ShapeAndClassesAreTheDataSets) {
  const auto configured = ConfigureModel(ConfigOf("vit-tiny", "patch=4,depth=6"),
                                         Stored({28, 28}, 7));
  ASSERT_TRUE(configured.has_value()) << configured.error().ToString();
  EXPECT_THAT(configured->request.shape, ElementsAre(1, 28, 28));
  EXPECT_EQ(configured->request.outputs, 7);
  EXPECT_THAT(configured->request.settings, ElementsAre(Pair("depth", 6.0), Pair("patch", 4.0)));
  EXPECT_FALSE(configured->channels_last);
  EXPECT_THAT(configured->Text(), HasSubstr("vit-tiny 1x28x28 to 7, patch 4"));
  EXPECT_THAT(configured->Text(), HasSubstr("loss cross-entropy"));
}

TEST(ModelConfig, WhatNobodySaysIsTheModelsOwn) {
  const auto configured = ConfigureModel(ConfigOf("cosmoflow"), {});
  ASSERT_TRUE(configured.has_value()) << configured.error().ToString();
  const ModelSizes sizes = ResolveModel(configured->request).value();
  EXPECT_THAT(sizes.shape, ElementsAre(4, 128, 128, 128));
  EXPECT_EQ(sizes.outputs, 4);
  EXPECT_EQ(sizes.loss, "squared-error");
}

TEST(ModelConfig, ConfigurationComesBeforeTheDataSet) {
  TrainConfig config = ConfigOf("lenet");
  config.model.classes = 12;
  config.model.shape = "1x14x56";
  config.model.loss = "absolute-error";
  const auto configured = ConfigureModel(config, Stored({28, 28}, 7));
  ASSERT_TRUE(configured.has_value()) << configured.error().ToString();
  EXPECT_THAT(configured->request.shape, ElementsAre(1, 14, 56));
  EXPECT_EQ(configured->request.outputs, 12);
  EXPECT_EQ(configured->request.loss, "absolute-error");
}

TEST(ModelConfig, ChannelsThatComeLastGoFirst) {
  const auto photos = ConfigureModel(ConfigOf("resnet18"), Stored({64, 48, 3}));
  ASSERT_TRUE(photos.has_value()) << photos.error().ToString();
  EXPECT_THAT(photos->request.shape, ElementsAre(3, 64, 48));
  EXPECT_TRUE(photos->channels_last);
  const auto planes = ConfigureModel(ConfigOf("resnet18"), Stored({3, 64, 48}));
  ASSERT_TRUE(planes.has_value());
  EXPECT_THAT(planes->request.shape, ElementsAre(3, 64, 48));
  EXPECT_FALSE(planes->channels_last);
  const auto cubes = ConfigureModel(ConfigOf("cosmoflow"), Stored({64, 64, 64, 4}));
  ASSERT_TRUE(cubes.has_value()) << cubes.error().ToString();
  EXPECT_THAT(cubes->request.shape, ElementsAre(4, 64, 64, 64));
  EXPECT_TRUE(cubes->channels_last);
}

TEST(ModelConfig, AxisOfChannelsCanBeSaid) {
  TrainConfig config = ConfigOf("resnet18");
  config.model.channel_axis = "last";
  const auto last = ConfigureModel(config, Stored({32, 32, 8}));
  ASSERT_TRUE(last.has_value()) << last.error().ToString();
  EXPECT_THAT(last->request.shape, ElementsAre(8, 32, 32));
  EXPECT_TRUE(last->channels_last);
  config.model.channel_axis = "first";
  const auto first = ConfigureModel(config, Stored({64, 48, 3}));
  ASSERT_TRUE(first.has_value());
  EXPECT_THAT(first->request.shape, ElementsAre(64, 48, 3));
  EXPECT_FALSE(first->channels_last);
}

TEST(ModelConfig, SmoothingOfTheTrainSectionIsTheLosss) {
  TrainConfig config = ConfigOf("resnet18");
  config.train.label_smoothing = 0.1;
  const auto configured = ConfigureModel(config, {});
  ASSERT_TRUE(configured.has_value());
  EXPECT_THAT(configured->request.settings, ElementsAre(Pair("label_smoothing", 0.1)));
  ExpectRefused([&] {
    config.model.architecture = "unet3d";
    return config;
  }(), {}, {"unet3d", "no setting label_smoothing"});
}

TEST(ModelConfig, FreshPrefixesNeedWeights) {
  TrainConfig config = ConfigOf("resnet18");
  config.model.fresh = "head.,stem.";
  ExpectRefused(config, {}, {"model.fresh", "model.weights"});
  config.model.weights = "r18.safetensors";
  const auto configured = ConfigureModel(config, {});
  ASSERT_TRUE(configured.has_value());
  EXPECT_THAT(configured->fresh, ElementsAre("head.", "stem."));
}

TEST(ModelConfig, WhatCannotBeIsRefusedWithWhatCan) {
  ExpectRefused(ConfigOf("vit"), {}, {"model.architecture", "there is no model", "vit-tiny"});
  ExpectRefused(ConfigOf("vit-tiny", "patch"), {}, {"model.settings", "name=number"});
  ExpectRefused(ConfigOf("vit-tiny", "patch=four"), {}, {"model.settings"});
  ExpectRefused(ConfigOf("vit-tiny", "patch=4,patch=7"), {}, {"patch is there twice"});
  ExpectRefused(ConfigOf("vit-tiny", "patches=4"), {}, {"no setting patches", "patch (1 to 1024)"});
  ExpectRefused(ConfigOf("vit-tiny"), Stored({28, 28}),
                {"images of 1x28x28 are no whole number of patches of 16"});
  ExpectRefused(ConfigOf("unet3d"), Stored({28, 28}),
                {"model.architecture = \"unet3d\"", "4 axes", "28x28", "model.shape"});
  TrainConfig config = ConfigOf("lenet");
  config.model.shape = "1x28";
  ExpectRefused(config, {}, {"samples of shape 1x28; it takes {C, H, W}"});
  config.model.shape = "1x28xx";
  ExpectRefused(config, {}, {"model.shape", "such as 3x224x224"});
  config.model.shape = "3x28x28";
  ExpectRefused(config, Stored({28, 28}), {"model.shape", "2352 elements", "784 (28x28)"});
  config = ConfigOf("lenet");
  config.model.input_mean = {0.1, 0.2};
  ExpectRefused(config, Stored({28, 28, 3}), {"model.input_mean", "each of 3 channels"});
}

TEST(ModelConfig, ListHasEveryModelSettingAndLoss) {
  const std::string list = ModelList();
  for (const std::string_view name : ModelNames()) EXPECT_THAT(list, HasSubstr(name));
  for (const ModelFamily* const family : ModelFamilies()) {
    EXPECT_THAT(list, HasSubstr(family->name));
    for (const LossKind* const loss : family->losses) EXPECT_THAT(list, HasSubstr(loss->name));
  }
  EXPECT_THAT(list, HasSubstr("small_stem"));
  EXPECT_THAT(list, HasSubstr("1x28x28 to 10, patch=4, width=64"));
}

}  // namespace forebay::train::model_config_test
