// Sizes, shapes, losses and imported weights of the models.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>

#include <cmath>
#include <fstream>
#include <map>
#include <optional>

#include "trainer/exec/hybrid_trainer.h"
#include "trainer/models/model_request.h"
#include "trainer/models/sample_losses.h"
#include "trainer/models/weight_import.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Shape = std::vector<std::int64_t>;

Model Make(const ModelRequest& request) {
  Result<Model> model = MakeModel(request);
  EXPECT_TRUE(model.has_value()) << (model.has_value() ? "" : model.error().ToString());
  return model.has_value() ? *std::move(model) : Model{};
}

std::int64_t ParametersOf(const Part& part) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : part.parameters()) count += parameter.numel();
  return count;
}

// Blocks of a vision transformer are alike: one of each is made.
std::int64_t ParametersOf(const Model& model) {
  std::map<std::string, std::int64_t> known;
  std::int64_t count = 0;
  for (const ModelPart& spec : model.parts) {
    std::string kind = spec.name;
    if (kind.starts_with("attention") || kind.starts_with("mlp")) {
      kind.resize(kind.find_first_of("0123456789"));
    }
    if (!known.contains(kind)) known[kind] = ParametersOf(*spec.make());
    count += known[kind];
  }
  return count;
}

using Parts = std::vector<std::shared_ptr<Part>>;

Parts MakeParts(const Model& model) {
  Parts parts;
  for (const ModelPart& spec : model.parts) parts.push_back(spec.make());
  return parts;
}

// One micro-batch through all parts: of a training step, or of an evaluation where there is none.
torch::Tensor Compute(const Model& model, const Parts& parts, const torch::Tensor& input,
                      std::optional<std::uint32_t> micro_batch = std::nullopt) {
  const torch::NoGradGuard no_grad;
  Pass pass;
  pass.training = micro_batch.has_value();
  pass.micro_batch = micro_batch.value_or(0);
  std::map<std::string, torch::Tensor> outputs;
  torch::Tensor last = input;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    std::vector<torch::Tensor> inputs = {last};
    for (const std::string& taken : model.parts[at].takes) inputs.push_back(outputs.at(taken));
    pass.part = model.parts[at].name;
    pass.draws = 0;
    last = outputs[pass.part] = parts[at]->Forward(inputs, pass);
  }
  return last;
}

TEST(Networks, ParameterCountsAreThePublished) {
  struct Case {
    const char* name;
    std::int64_t parameters;
  };
  // torchvision's and timm's.
  for (const Case& published :
       {Case{"resnet18", 11'689'512}, Case{"resnet50", 25'557'032}, Case{"vit-tiny", 5'717'416},
        Case{"vit-small", 22'050'664}, Case{"vit-base", 86'567'656},
        Case{"vit-large", 304'326'632}, Case{"vit-huge", 632'045'800}}) {
    EXPECT_EQ(ParametersOf(Make({.name = published.name})), published.parameters)
        << published.name;
  }
  EXPECT_EQ(ParametersOf(Make({.name = "lenet"})), 416 + 12'832 + 32 * 49 * 128 + 128 + 1'290);
}

TEST(Networks, UNetHasTheReferencesConvolutions) {
  const auto convolution = [](std::int64_t in, std::int64_t out) {
    return 27 * in * out + 2 * out;
  };
  const Shape widths = {32, 64, 128, 256, 320, 320};  // down to the bottom
  std::int64_t expected = 0;
  std::int64_t channels = 1;
  for (const std::int64_t width : widths) {
    expected += convolution(channels, width) + convolution(width, width);
    channels = width;
  }
  for (std::size_t level = 5; level-- > 0;) {
    const std::int64_t width = widths[level];
    expected += 8 * widths[level + 1] * width + width;  // the transposed one
    expected += convolution(2 * width, width) + convolution(width, width);
  }
  expected += 32 * 3 + 3;
  const Model model = Make({.name = "unet3d"});
  EXPECT_EQ(ParametersOf(model), expected);
  EXPECT_EQ(model.parts.size(), 2U * 6 + 2 * 5 + 1);
}

TEST(Networks, CosmoFlowHasTheReferencesLayers) {
  std::int64_t expected = 0;
  std::int64_t channels = 4;
  for (const std::int64_t width : {32, 64, 128, 256, 512}) {
    expected += 27 * channels * width + width;
    channels = width;
  }
  expected += 512 * 4 * 4 * 4 * 128 + 128 + 128 * 64 + 64 + 64 * 4 + 4;
  EXPECT_EQ(ParametersOf(Make({.name = "cosmoflow"})), expected);
}

TEST(Networks, OutputsHaveTheShapesAskedFor) {
  struct Case {
    ModelRequest request;
    Shape output;
  };
  const std::vector<Case> cases = {
      {{.name = "lenet", .shape = {3, 30, 21}}, {2, 10}},
      {{.name = "resnet18", .shape = {1, 28, 28}, .outputs = 10, .settings = {{"small_stem", 1}}},
       {2, 10}},
      {{.name = "resnet50", .shape = {3, 48, 64}}, {2, 1000}},
      {{.name = "vit-tiny",
        .shape = {1, 28, 28},
        .outputs = 10,
        .settings = {{"patch", 4}, {"depth", 2}}},
       {2, 10}},
      {{.name = "vit-base", .shape = {3, 32, 48}, .settings = {{"depth", 1}}}, {2, 1000}},
      {{.name = "unet3d", .shape = {2, 32, 64, 32}, .settings = {{"width", 8}}},
       {2, 3, 32, 64, 32}},
      {{.name = "cosmoflow", .shape = {4, 32, 64, 40}, .settings = {{"width", 8}}}, {2, 4}},
  };
  for (const Case& asked : cases) {
    Shape shape = asked.request.shape;
    shape.insert(shape.begin(), 2);
    const Model model = Make(asked.request);
    const torch::Tensor output = Compute(model, MakeParts(model), torch::randn(shape));
    EXPECT_EQ(output.sizes(), torch::IntArrayRef(asked.output)) << model.name;
  }
}

std::vector<PartOutput> PartOutputs(const ModelRequest& request, const torch::Tensor& input,
                                    const torch::Tensor& target) {
  const auto measure =
      MeasureModel(Make(request), input, target, [] { return std::uint64_t{0}; });
  EXPECT_TRUE(measure.has_value()) << (measure.has_value() ? "" : measure.error().ToString());
  return measure.has_value() ? measure->outputs : std::vector<PartOutput>{};
}

TEST(Networks, SmallStemKeepsTheImage) {
  ModelRequest request = {.name = "resnet18", .shape = {3, 32, 32}, .outputs = 10};
  const torch::Tensor input = torch::randn({2, 3, 32, 32});
  const torch::Tensor target = torch::zeros({2}, torch::kLong);
  EXPECT_THAT(PartOutputs(request, input, target).at(0).shape, ElementsAre(64, 8, 8));
  request.settings["small_stem"] = 1;
  const std::vector<PartOutput> outputs = PartOutputs(request, input, target);
  EXPECT_THAT(outputs.at(0).shape, ElementsAre(64, 32, 32));
  EXPECT_THAT(outputs.at(8).shape, ElementsAre(512, 4, 4));
}

TEST(Networks, BottleneckStridesInItsSecondConvolution) {
  const Model model = Make({.name = "resnet50"});
  const auto found = std::ranges::find(model.parts, "layer2.0", &ModelPart::name);
  ASSERT_NE(found, model.parts.end());
  std::map<std::string, std::int64_t> strides;
  for (const auto& item : found->make()->named_modules()) {
    const auto* const conv = item.value()->as<torch::nn::Conv2d>();
    if (conv != nullptr) strides[item.key()] = conv->options.stride()->at(0);
  }
  EXPECT_EQ(strides, (std::map<std::string, std::int64_t>{
                         {"conv1", 1}, {"conv2", 2}, {"conv3", 1}, {"downsample.0", 2}}));
}

TEST(Networks, DropoutIsKeyedByMicroBatchAndOffInEvaluation) {
  const Model model = Make({.name = "vit-micro"});
  const Parts parts = MakeParts(model);
  const torch::Tensor input = torch::randn({2, 1, 8, 8});
  const torch::Tensor first = Compute(model, parts, input, 1);
  EXPECT_TRUE(first.equal(Compute(model, parts, input, 1)));
  EXPECT_FALSE(first.equal(Compute(model, parts, input, 2)));
  EXPECT_TRUE(Compute(model, parts, input).equal(Compute(model, parts, input)));
}

TEST(Networks, UnknownModelIsAnError) {
  const auto model = MakeModel({.name = "resnet19"});
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code(), ErrorCode::kInvalidArgument);
}

TEST(SampleLosses, DiceAndCrossEntropyAreTheMeansOfASample) {
  // Two voxels, two classes; the first is background, the second is class 1.
  const torch::Tensor output = torch::tensor({2.0F, 0.0F, 0.0F, 1.0F}).reshape({1, 2, 1, 1, 2});
  const torch::Tensor target = torch::tensor({0, 1}, torch::kUInt8).reshape({1, 1, 1, 1, 2});
  const double share0 = 1 / (1 + std::exp(2.0));   // of class 1 in voxel 0
  const double share1 = 1 / (1 + std::exp(-1.0));  // in voxel 1
  const double cross_entropy = -(std::log(1 - share0) + std::log(share1)) / 2;
  const double dice = (2 * share1 + 1e-6) / (share0 + share1 + 1 + 1e-6);
  const auto loss = MakeDiceCrossEntropy();
  EXPECT_NEAR(loss->Sum(output, target).item<double>(), (cross_entropy + 1 - dice) / 2, 1e-6);
  EXPECT_NEAR(loss->Sum(output.repeat({3, 1, 1, 1, 1}), target.repeat({3, 1, 1, 1, 1}))
                  .item<double>(),
              3 * (cross_entropy + 1 - dice) / 2, 1e-5);
  const Score right = loss->Evaluate(output, target.squeeze(1).to(torch::kLong));
  EXPECT_EQ(right.samples, 1U);
  EXPECT_NEAR(right.sum, 1.0, 1e-6);
  // The likeliest classes swapped: nothing of class 1 is found where it is.
  EXPECT_NEAR(loss->Evaluate(output.flip({1}), target).sum, 0.0, 1e-5);
  EXPECT_THROW((void)loss->Sum(output, target.narrow(4, 0, 1)), std::exception);
}

TEST(SampleLosses, ErrorsOfNumbersAreMeansOverThem) {
  const torch::Tensor output = torch::tensor({1.0F, 2.0F, 0.0F, 0.0F}).reshape({2, 2});
  const torch::Tensor target = torch::tensor({0.0F, 4.0F, 0.0F, -1.0F}).reshape({2, 2});
  EXPECT_EQ(MakeSquaredError()->Sum(output, target).item<double>(), 2.5 + 0.5);
  EXPECT_EQ(MakeAbsoluteError()->Sum(output, target).item<double>(), 1.5 + 0.5);
  for (const auto& loss : {MakeSquaredError(), MakeAbsoluteError()}) {
    const Score score = loss->Evaluate(output, target);
    EXPECT_EQ(score.sum, 2.0);
    EXPECT_EQ(score.samples, 2U);
  }
}

// The tensors of `parts` as a file of another program would have them.
void WriteForeign(const std::filesystem::path& path, const Model& model, const Parts& parts,
                  std::span<const NameRule> names) {
  std::vector<TensorEntry> entries;
  std::string data;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    TensorEntry entry = {.name = ForeignName(names, name),
                         .dtype = "F32",
                         .shape = {tensor.sizes().begin(), tensor.sizes().end()},
                         .begin = data.size()};
    data.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    entry.end = data.size();
    entries.push_back(entry);
  };
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const std::string prefix = model.parts[at].name + ".";
    for (const auto& item : parts[at]->named_parameters()) add(prefix + item.key(), item.value());
    for (const auto& item : parts[at]->named_buffers()) {
      item.value().uniform_(0.5, 2);  // as if it had been trained
      add(prefix + item.key(), item.value());
    }
  }
  const std::vector<std::byte> header = EncodeSafetensorsHeader({{"format", "pt"}}, entries);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()),
             static_cast<std::streamsize>(header.size()));
  file.write(data.data(), static_cast<std::streamsize>(data.size()));
}

TEST(WithWeights, ImportedModelComputesTheSame) {
  const testing::TempFolder temp;
  for (const char* const name : {"lenet-micro", "resnet-bottleneck-micro", "vit-micro"}) {
    const ModelSizes sizes = ResolveModel({.name = name}).value();
    const Model model = Make({.name = name});
    const Parts parts = MakeParts(model);
    const auto path = temp.path() / "weights.safetensors";
    WriteForeign(path, model, parts, sizes.family->foreign_names);
    Shape shape = sizes.shape;
    shape.insert(shape.begin(), 2);
    const torch::Tensor input = torch::randn(shape);
    const torch::Tensor expected = Compute(model, parts, input);
    EXPECT_FALSE(Compute(model, MakeParts(model), input).equal(expected)) << name;
    const Result<Model> imported = WithWeights(model, path, {.names = sizes.family->foreign_names});
    ASSERT_TRUE(imported.has_value()) << imported.error().ToString();
    EXPECT_TRUE(Compute(*imported, MakeParts(*imported), input).equal(expected)) << name;
  }
}

TEST(WithWeights, FreshHeadIsForOtherClasses) {
  const testing::TempFolder temp;
  const auto path = temp.path() / "weights.safetensors";
  const Model model = Make({.name = "resnet-micro"});
  const Parts parts = MakeParts(model);
  const ImportOptions options{
      .names = ResolveModel({.name = "resnet-micro"}).value().family->foreign_names,
      .fresh = {"head."}};
  WriteForeign(path, model, parts, options.names);
  const Model other = Make({.name = "resnet-micro", .outputs = 7});
  const Result<Model> refused = WithWeights(other, path, {.names = options.names});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("weights.safetensors"));
  EXPECT_THAT(refused.error().message(), HasSubstr("fc.weight [3, 12], the model has [7, 12]"));
  const Result<Model> tuned = WithWeights(other, path, options);
  ASSERT_TRUE(tuned.has_value()) << tuned.error().ToString();
  const Parts made = MakeParts(*tuned);
  EXPECT_TRUE(made[0]->parameters()[0].equal(parts[0]->parameters()[0]));
  EXPECT_EQ(made.back()->parameters()[0].size(0), 7);
  EXPECT_EQ(WithWeights(other, temp.path() / "none", options).error().code(),
            ErrorCode::kNotFound);
}

TEST(WithWeights, NamesAreThoseOfTorchvisionAndTimm) {
  struct Case {
    const char* name;
    std::size_t tensors;  // counters of batch normalisation left out
    std::vector<std::string> some;
  };
  for (const Case& known :
       {Case{"resnet50", 161 + 106,
             {"conv1.weight", "bn1.running_var", "layer1.0.downsample.1.running_mean",
              "layer4.2.conv3.weight", "fc.bias"}},
        Case{"vit-tiny", 152,
             {"cls_token", "pos_embed", "patch_embed.proj.bias", "blocks.11.attn.proj.weight",
              "blocks.0.norm2.weight", "blocks.3.mlp.fc2.bias", "norm.bias", "head.weight"}}}) {
    const ModelSizes sizes = ResolveModel({.name = known.name}).value();
    std::vector<std::string> names;
    for (const ModelPart& spec : Make({.name = known.name}).parts) {
      const auto part = spec.make();
      for (const auto& item : part->named_parameters()) {
        names.push_back(ForeignName(sizes.family->foreign_names, spec.name + "." + item.key()));
      }
      for (const auto& item : part->named_buffers()) {
        names.push_back(ForeignName(sizes.family->foreign_names, spec.name + "." + item.key()));
      }
    }
    EXPECT_EQ(names.size(), known.tensors);
    EXPECT_THAT(names, ::testing::IsSupersetOf(known.some));
  }
}

}  // namespace
}  // namespace forebay::train
