// Every registered family is complete and consistent, and requests outside of its bounds are
// refused with the bounds.
#include "trainer/models/model_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace forebay::train::model_request_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectRefused(const ModelRequest& request, const std::string& message) {
  const auto sizes = ResolveModel(request);
  ASSERT_FALSE(sizes.has_value()) << message;
  EXPECT_EQ(sizes.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(sizes.error().message(), HasSubstr(message));
}

TEST(ModelRequest, EveryNameResolvesAsItIs) {
  std::set<std::string> titles;
  for (const std::string_view name : ModelNames()) {
    const auto sizes = ResolveModel({.name = std::string(name)});
    ASSERT_TRUE(sizes.has_value()) << sizes.error().ToString();
    EXPECT_EQ(sizes->settings.size(), sizes->family->settings.size());
    titles.insert(sizes->Title());
  }
  EXPECT_EQ(titles.size(), ModelNames().size());
}

// What a descriptor says fits together: a new family is held against this.
TEST(ModelRequest, EveryFamilyIsComplete) {
  for (const ModelFamily* const family : ModelFamilies()) {
    EXPECT_FALSE(family->presets.empty()) << family->name;
    EXPECT_TRUE(family->axes == 3 || family->axes == 4) << family->name;
    EXPECT_NE(family->parts, nullptr) << family->name;
    for (const ModelPreset& preset : family->presets) {
      for (const ModelPreset::Setting& own : preset.settings) {
        const bool is_there =
            own.name.empty() ||
            std::ranges::count(family->settings, own.name, &ModelSetting::name) == 1;
        EXPECT_TRUE(is_there) << preset.name << " " << own.name;
      }
    }
    for (const ModelSetting& setting : family->settings) {
      EXPECT_LE(setting.minimum, setting.usual) << setting.name;
      EXPECT_LE(setting.usual, setting.maximum) << setting.name;
    }
    for (const LossKind* const loss : family->losses) {
      const auto sizes = ResolveModel({.name = std::string(family->presets.front().name),
                                       .loss = std::string(loss->name)});
      ASSERT_TRUE(sizes.has_value()) << sizes.error().ToString();
      EXPECT_EQ(&LossOf(*sizes), loss);
    }
  }
}

TEST(ModelRequest, PresetsDifferFromTheFamilysUsualNumbers) {
  const auto base = ResolveModel({.name = "vit-base"});
  ASSERT_TRUE(base.has_value());
  EXPECT_EQ(base->Whole("width"), 768);
  EXPECT_EQ(base->Whole("depth"), 12);
  EXPECT_EQ(base->Whole("patch"), 16);
  EXPECT_THAT(base->shape, ElementsAre(3, 224, 224));
  EXPECT_EQ(base->outputs, 1000);
  EXPECT_EQ(base->loss, "cross-entropy");
}

TEST(ModelRequest, RequestComesBeforeThePreset) {
  const auto sizes = ResolveModel({.name = "vit-tiny",
                                   .shape = {1, 28, 28},
                                   .outputs = 10,
                                   .settings = {{"patch", 4}, {"depth", 6}, {"dropout", 0.1}}});
  ASSERT_TRUE(sizes.has_value()) << sizes.error().ToString();
  EXPECT_EQ(sizes->Whole("patch"), 4);
  EXPECT_EQ(sizes->Whole("width"), 192);
  EXPECT_EQ(sizes->Number("dropout"), 0.1);
  EXPECT_EQ(sizes->Title(),
            "vit-tiny 1x28x28 to 10, patch 4, width 192, depth 6, heads 3, mlp_ratio 4");
}

TEST(ModelRequest, TitleDoesNotNameWhatLeavesParametersAlone) {
  const auto with = ResolveModel({.name = "cosmoflow", .settings = {{"dropout", 0.1}}});
  const auto without = ResolveModel({.name = "cosmoflow"});
  ASSERT_TRUE(with.has_value() && without.has_value());
  EXPECT_EQ(with->Title(), without->Title());
}

TEST(ModelRequest, BoundsAreWithin) {
  EXPECT_TRUE(ResolveModel({.name = "lenet", .shape = {1, 4, 4}, .outputs = 1}).has_value());
  EXPECT_TRUE(ResolveModel({.name = "lenet", .settings = {{"channels", 4096}}}).has_value());
  EXPECT_TRUE(ResolveModel({.name = "cosmoflow", .shape = {4, 32, 32, 32}}).has_value());
  EXPECT_TRUE(ResolveModel({.name = "unet3d", .shape = {1, 64, 32, 32}}).has_value());
}

TEST(ModelRequest, UnknownNamesListTheKnown) {
  ExpectRefused({.name = "resnet19"}, "there is no model \"resnet19\"; there are: lenet");
  ExpectRefused({.name = ""}, "vit-huge");
  ExpectRefused({.name = "resnet18", .settings = {{"depth", 3}}}, "there is no setting depth");
  ExpectRefused({.name = "resnet18", .settings = {{"depth", 3}}}, "small_stem (0 to 1)");
  ExpectRefused({.name = "resnet18", .loss = "hinge"}, "loss \"hinge\"; ResNet takes");
  ExpectRefused({.name = "resnet18", .loss = "dice-cross-entropy"}, "absolute-error");
  ExpectRefused({.name = "unet3d", .loss = "cross-entropy"}, "takes dice-cross-entropy");
}

TEST(ModelRequest, NumbersOutOfBoundsAreRefused) {
  const auto lenet = [](double channels) {
    return ModelRequest{.name = "lenet", .settings = {{"channels", channels}}};
  };
  for (const double channels : {0.0, -1.0, 4097.0, 2.5, std::nan(""), 1e300}) {
    ExpectRefused(lenet(channels), "a whole number from 1 to 4096");
  }
  ExpectRefused({.name = "vit-tiny", .settings = {{"dropout", 1.0}}}, "a number from 0 to 0.99");
  ExpectRefused({.name = "lenet", .outputs = -1}, "outputs");
  ExpectRefused({.name = "lenet", .outputs = 1'000'001}, "outputs");
}

TEST(ModelRequest, ShapesThatCannotBeAreRefused) {
  ExpectRefused({.name = "resnet18", .shape = {3, 224}}, "it takes {C, H, W}");
  ExpectRefused({.name = "unet3d", .shape = {3, 224, 224}}, "it takes {C, D, H, W}");
  ExpectRefused({.name = "resnet18", .shape = {3, 0, 224}}, "extents are from 1");
  ExpectRefused({.name = "resnet18", .shape = {3, 65'537, 1}}, "extents are from 1");
  ExpectRefused({.name = "resnet18", .shape = {3, 65'536, 65'536}}, "elements up to");
  ExpectRefused({.name = "lenet", .shape = {1, 3, 28}}, "at least 4");
  ExpectRefused({.name = "vit-tiny", .shape = {1, 28, 28}}, "no whole number of patches of 16");
  ExpectRefused({.name = "vit-tiny", .settings = {{"heads", 5}}}, "no multiple of 5 heads");
  ExpectRefused({.name = "unet3d", .shape = {1, 48, 64, 64}}, "multiples of 32");
  ExpectRefused({.name = "unet3d", .shape = {1, 32, 32, 32}}, "one at least is larger");
  ExpectRefused({.name = "unet3d", .outputs = 1}, "background");
  ExpectRefused({.name = "cosmoflow", .shape = {4, 31, 64, 64}}, "vanish after 5 halvings");
}

}  // namespace forebay::train::model_request_test
