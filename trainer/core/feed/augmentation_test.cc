// Crops, flips and normalisation of single samples, whose elements are numbered so that each can
// be followed to its place.
#include "trainer/core/feed/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace forebay::train {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Use = Augmentation::Use;
using Bytes = std::vector<std::byte>;

FieldSpec Field(std::vector<std::uint64_t> shape, Dtype dtype = Dtype::kU8) {
  return {.name = "x", .dtype = dtype, .source = FieldSource::kExtent, .big_endian = false,
          .shape = std::move(shape)};
}

AugmentationConfig Config(const std::string& crop, std::int64_t padding = 0,
                          const std::string& flip = "") {
  AugmentationConfig config;
  config.crop = crop;
  config.padding = padding;
  config.flip = flip;
  return config;
}

Augmentation Make(const AugmentationConfig& config, const FieldSpec& field,
                  Use use = Use::kTraining) {
  auto made = Augmentation::OfInput(config, field, use);
  EXPECT_TRUE(made.has_value()) << made.error().ToString();
  return made->value();
}

// 1, 2, 3 ...: each element says where it comes from, and none is a zero of the padding.
Bytes Counted(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t at = 0; at < count; ++at) bytes[at] = static_cast<std::byte>(at + 1);
  return bytes;
}

std::vector<int> Applied(const Augmentation& augmentation, const Bytes& sample,
                         std::uint64_t seed) {
  Bytes output(augmentation.output_bytes(), std::byte{0xEE});
  augmentation.Apply(sample, seed, output);
  std::vector<int> values;
  for (const std::byte byte : output) values.push_back(std::to_integer<int>(byte));
  return values;
}

std::set<std::vector<int>> OutcomesOf(const Augmentation& augmentation, const Bytes& sample) {
  std::set<std::vector<int>> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    seen.insert(Applied(augmentation, sample, seed));
  }
  return seen;
}

TEST(Augmentation, NothingAskedForIsNone) {
  const auto none = Augmentation::OfInput({}, Field({3, 4}), Use::kTraining);
  ASSERT_TRUE(none.has_value());
  EXPECT_FALSE(none->has_value());
}

TEST(Augmentation, IsAFunctionOfSampleAndSeed) {
  const Augmentation augmentation = Make(Config("4x4", 2, "hw"), Field({2, 4, 4}));
  const Bytes sample = Counted(32);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(Applied(augmentation, sample, seed), Applied(augmentation, sample, seed));
  }
  EXPECT_GT(OutcomesOf(augmentation, sample).size(), 50U);
}

TEST(Augmentation, FlipsMirrorTheirAxesOnly) {
  const Bytes sample = Counted(6);  // 2 x 3
  const auto width = OutcomesOf(Make(Config("", 0, "w"), Field({2, 3})), sample);
  EXPECT_EQ(width, (std::set<std::vector<int>>{{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}}));
  const auto height = OutcomesOf(Make(Config("", 0, "h"), Field({2, 3})), sample);
  EXPECT_EQ(height, (std::set<std::vector<int>>{{1, 2, 3, 4, 5, 6}, {4, 5, 6, 1, 2, 3}}));
  EXPECT_EQ(OutcomesOf(Make(Config("", 0, "hw"), Field({2, 3})), sample).size(), 4U);
}

TEST(Augmentation, CropsReachEveryPlace) {
  const auto seen = OutcomesOf(Make(Config("1x2"), Field({2, 3})), Counted(6));
  EXPECT_EQ(seen, (std::set<std::vector<int>>{{1, 2}, {2, 3}, {4, 5}, {5, 6}}));
}

TEST(Augmentation, PaddingIsZerosAroundTheSample) {
  const auto seen = OutcomesOf(Make(Config("1x3", 1), Field({1, 2})), Counted(2));
  EXPECT_EQ(seen, (std::set<std::vector<int>>{{0, 0, 0}, {0, 1, 2}, {1, 2, 0}}));
}

TEST(Augmentation, FlippedCropsWithPaddingAreMirrorImagesOfPlainOnes) {
  const auto seen = OutcomesOf(Make(Config("1x3", 1, "w"), Field({1, 2})), Counted(2));
  EXPECT_EQ(seen, (std::set<std::vector<int>>{
                      {0, 0, 0}, {0, 1, 2}, {1, 2, 0}, {2, 1, 0}, {0, 2, 1}}));
}

TEST(Augmentation, ChannelsAreCutAlike) {
  for (const std::vector<int>& seen :
       OutcomesOf(Make(Config("2x2", 1, "hw"), Field({2, 3, 3})), Counted(18))) {
    for (std::size_t at = 0; at < 4; ++at) {
      EXPECT_EQ(seen[4 + at], seen[at] == 0 ? 0 : seen[at] + 9);
    }
  }
}

TEST(Augmentation, VolumesAndTheirTargetsAreCutAlike) {
  const AugmentationConfig config = Config("2x2x2", 1, "dhw");
  const FieldSpec input = Field({3, 3, 3});
  const FieldSpec labels = Field({1, 3, 3, 3}, Dtype::kI16);
  const Augmentation of_input = Make(config, input);
  const auto of_target = Augmentation::OfTarget(config, input, labels, Use::kTraining);
  ASSERT_TRUE(of_target.has_value() && of_target->has_value());
  EXPECT_THAT((*of_target)->shape(), ElementsAre(1, 2, 2, 2));
  Bytes wide;
  for (const std::byte byte : Counted(27)) wide.insert(wide.end(), {byte, std::byte{0}});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<int> cut = Applied(of_input, Counted(27), seed);
    const std::vector<int> target = Applied(**of_target, wide, seed);
    for (std::size_t at = 0; at < cut.size(); ++at) EXPECT_EQ(target[2 * at], cut[at]);
  }
  EXPECT_GT(OutcomesOf(of_input, Counted(27)).size(), 100U);
}

TEST(Augmentation, TargetsThatAreNoVolumesAreLeftAlone) {
  const FieldSpec input = Field({3, 8, 8});
  for (const FieldSpec& target : {Field({}), Field({4}), Field({8, 4})}) {
    const auto none = Augmentation::OfTarget(Config("4x4"), input, target, Use::kTraining);
    ASSERT_TRUE(none.has_value());
    EXPECT_FALSE(none->has_value());
  }
}

TEST(Augmentation, EvaluationsTakeTheMiddle) {
  const AugmentationConfig config = Config("1x2", 0, "hw");
  const Augmentation augmentation = Make(config, Field({3, 4}), Use::kEvaluation);
  EXPECT_EQ(OutcomesOf(augmentation, Counted(12)), (std::set<std::vector<int>>{{6, 7}}));
  // Padding is for training: the middle of 3 in 3 + 2 * 2 is all of it.
  const Augmentation padded = Make(Config("1x3", 2), Field({1, 3}), Use::kEvaluation);
  EXPECT_EQ(OutcomesOf(padded, Counted(3)), (std::set<std::vector<int>>{{1, 2, 3}}));
}

TEST(Augmentation, ChannelsAreNormalised) {
  AugmentationConfig config;
  config.channel_means = "0,0.5";
  config.channel_stddevs = "1,0.25";
  const Augmentation augmentation = Make(config, Field({2, 1, 2}));
  EXPECT_EQ(augmentation.dtype(), Dtype::kF32);
  EXPECT_THAT(augmentation.shape(), ElementsAre(2, 1, 2));
  const Bytes sample = {std::byte{0}, std::byte{255}, std::byte{0}, std::byte{255}};
  std::vector<float> output(4);
  augmentation.Apply(sample, 0, std::as_writable_bytes(std::span(output)));
  EXPECT_THAT(output, ElementsAreArray({0.0F, 1.0F, -2.0F, 2.0F}));
}

TEST(Augmentation, FloatsAreNotScaled) {
  AugmentationConfig config;
  config.channel_means = "1";
  config.channel_stddevs = "2";
  const Augmentation augmentation = Make(config, Field({1, 2}, Dtype::kF32));
  const std::vector<float> sample = {3, -1};
  std::vector<float> output(2);
  augmentation.Apply(std::as_bytes(std::span(sample)), 0,
                     std::as_writable_bytes(std::span(output)));
  EXPECT_THAT(output, ElementsAre(1.0F, -1.0F));
}

TEST(Augmentation, WhatDoesNotFitNamesKeyAndField) {
  struct Case {
    AugmentationConfig config;
    FieldSpec field;
    const char* message;
  };
  AugmentationConfig means = Config("");
  means.channel_means = "1,2";
  means.channel_stddevs = "1,1";
  AugmentationConfig zero = Config("");
  zero.channel_means = "1";
  zero.channel_stddevs = "0";
  AugmentationConfig opaque = Config("");
  opaque.channel_means = "1";
  opaque.channel_stddevs = "1";
  FieldSpec reversed = Field({4, 4}, Dtype::kI16);
  reversed.big_endian = true;
  const std::vector<Case> cases = {
      {Config("4"), Field({8, 8}), "augmentation.crop"},
      {Config("4x"), Field({8, 8}), "augmentation.crop"},
      {Config("4x4x4x4"), Field({8, 8}), "augmentation.crop"},
      {Config("0x4"), Field({8, 8}), "augmentation.crop"},
      {Config("-4x4"), Field({8, 8}), "augmentation.crop"},
      {Config("9x8"), Field({8, 8}), "field x has 8 along h"},
      {Config("4x4"), Field({8}), "field x has 1 dimensions"},
      {Config("4x4x4"), Field({8, 8}), "field x has 2 dimensions"},
      {Config("4x4", 0, "d"), Field({8, 8, 8}), "DxHxW"},
      {Config("", 0, "ww"), Field({8, 8}), "augmentation.flip"},
      {Config("", 0, "x"), Field({8, 8}), "augmentation.flip"},
      {Config("2x2"), reversed, "big-endian"},
      {means, Field({3, 8, 8}), "3 numbers"},
      {zero, Field({8, 8}), "above 0"},
      {opaque, Field({8, 8}, Dtype::kF64), "is of f64"},
  };
  for (const Case& wrong : cases) {
    const auto made = Augmentation::OfInput(wrong.config, wrong.field, Use::kTraining);
    ASSERT_FALSE(made.has_value()) << wrong.message;
    EXPECT_EQ(made.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(made.error().message(), HasSubstr(wrong.message));
  }
}

}  // namespace
}  // namespace forebay::train
