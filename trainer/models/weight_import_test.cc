// Names of weights in torchvision's and timm's files, and what is said about a file that does not
// fit. The expected names are those of the two libraries.
#include "trainer/models/weight_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/models/model_request.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Names {
  const char* own;
  const char* foreign;
};

// Those of the family that has a model of this name.
std::span<const NameRule> NamesOf(const std::string& model) {
  return ResolveModel({.name = model}).value().family->foreign_names;
}

void ExpectNames(const std::string& model, const std::vector<Names>& names) {
  for (const Names& pair : names) {
    EXPECT_EQ(ForeignName(NamesOf(model), pair.own), pair.foreign);
  }
}

TEST(NameTable, ResNetIsTorchvisions) {
  ExpectNames("resnet18", {{"stem.conv1.weight", "conv1.weight"},
                           {"stem.bn1.running_var", "bn1.running_var"},
                           {"layer3.11.bn2.bias", "layer3.11.bn2.bias"},
                           {"layer2.0.downsample.0.weight", "layer2.0.downsample.0.weight"},
                           {"head.fc.bias", "fc.bias"}});
}

TEST(NameTable, VisionTransformerIsTimms) {
  ExpectNames("vit-tiny",
              {{"patches.cls_token", "cls_token"},
               {"patches.pos_embed", "pos_embed"},
               {"patches.proj.weight", "patch_embed.proj.weight"},
               {"attention0.norm.bias", "blocks.0.norm1.bias"},
               {"attention31.qkv.weight", "blocks.31.attn.qkv.weight"},
               {"mlp7.norm.weight", "blocks.7.norm2.weight"},
               {"mlp7.fc1.weight", "blocks.7.mlp.fc1.weight"},
               {"head.norm.weight", "norm.weight"},
               {"head.fc.weight", "head.weight"},
               {"attention.qkv", "attention.qkv"},  // no number: no rule
               {"mlp12", "mlp12"}});
}

TEST(NameTable, OtherFamiliesKeepTheirNames) {
  EXPECT_TRUE(NamesOf("unet3d").empty());
  EXPECT_EQ(ForeignName(NamesOf("cosmoflow"), "conv1.conv.bias"), "conv1.conv.bias");
  EXPECT_TRUE(IsNoWeight("bn1.num_batches_tracked"));
  EXPECT_FALSE(IsNoWeight("bn1.weight"));
}

const std::vector<WantedTensor> kWanted = {{.name = "stem.conv1.weight", .shape = {2, 3}},
                                           {.name = "head.fc.weight", .shape = {4}}};

TensorEntry Entry(std::string name, std::vector<std::uint64_t> shape,
                  std::string dtype = "F32") {
  return {.name = std::move(name), .dtype = std::move(dtype), .shape = std::move(shape)};
}

std::string ComplaintOf(const SafetensorsHeader& header, const ImportOptions& options) {
  const auto matches = MatchWeights(header, kWanted, options);
  if (matches.has_value()) return "";
  EXPECT_EQ(matches.error().code(), ErrorCode::kFailedPrecondition);
  return matches.error().message();
}

TEST(WeightImport, FindsForeignNamesAndOwnOnes) {
  const ImportOptions options{.names = NamesOf("resnet18")};
  SafetensorsHeader header;
  header.tensors = {Entry("conv1.weight", {2, 3}, "BF16"), Entry("head.fc.weight", {4}),
                    Entry("bn1.num_batches_tracked", {}, "I64")};
  const auto matches = MatchWeights(header, kWanted, options);
  ASSERT_TRUE(matches.has_value()) << matches.error().ToString();
  ASSERT_EQ(matches->size(), 2U);
  EXPECT_EQ((*matches)[0].name, "stem.conv1.weight");
  EXPECT_EQ((*matches)[0].entry, &header.tensors[0]);
  EXPECT_EQ((*matches)[1].entry, &header.tensors[1]);
}

TEST(WeightImport, ListsEveryDifference) {
  const ImportOptions options{.names = NamesOf("resnet18")};
  SafetensorsHeader header;
  header.tensors = {Entry("conv1.weight", {3, 2}), Entry("bn7.weight", {4})};
  const std::string complaint = ComplaintOf(header, options);
  EXPECT_THAT(complaint, HasSubstr("1 missing: fc.weight"));
  EXPECT_THAT(complaint,
              HasSubstr("1 of another shape: conv1.weight [3, 2], the model has [2, 3]"));
  EXPECT_THAT(complaint, HasSubstr("1 unknown to the model: bn7.weight"));
  header.tensors = {Entry("conv1.weight", {2, 3}, "F64"), Entry("fc.weight", {4})};
  EXPECT_THAT(ComplaintOf(header, options), HasSubstr("conv1.weight of F64"));
}

TEST(WeightImport, ListsTenOfAKind) {
  const ImportOptions options{.names = NamesOf("resnet18")};
  SafetensorsHeader header;
  header.tensors = {Entry("conv1.weight", {2, 3}), Entry("fc.weight", {4})};
  for (int at = 0; at < 11; ++at) header.tensors.push_back(Entry("x" + std::to_string(at), {}));
  const std::string complaint = ComplaintOf(header, options);
  EXPECT_THAT(complaint, HasSubstr("11 unknown"));
  EXPECT_THAT(complaint, HasSubstr("x9 ..."));
  EXPECT_THAT(complaint, Not(HasSubstr("x10")));
}

TEST(WeightImport, FreshTensorsMayDifferOrMiss) {
  const ImportOptions options{.names = NamesOf("resnet18"), .fresh = {"head."}};
  SafetensorsHeader header;
  header.tensors = {Entry("conv1.weight", {2, 3}), Entry("fc.weight", {1000})};
  const auto other = MatchWeights(header, kWanted, options);
  ASSERT_TRUE(other.has_value()) << other.error().ToString();
  EXPECT_EQ(other->size(), 1U);
  header.tensors.pop_back();
  EXPECT_TRUE(MatchWeights(header, kWanted, options).has_value());
}

}  // namespace
}  // namespace forebay::train
