// From stored bytes to the tensors of a model: order of axes, standardisation, targets by loss,
// and first weights from a file.
#include "trainer/exec/model_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "trainer/core/weights/safetensors.h"
#include "trainer/models/model_config.h"
#include "trainer/models/model_request.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const ModelTask> TaskOf(const TrainConfig& config, const SampleFacts& facts) {
  auto task = MakeModelTask(config, facts);
  EXPECT_TRUE(task.has_value()) << task.error().ToString();
  return *task;
}

template <typename Element>
FeedTensor ViewOf(const std::vector<Element>& elements, Dtype dtype,
                  std::vector<std::uint64_t> shape) {
  return {.data = reinterpret_cast<const std::byte*>(elements.data()),
          .bytes = elements.size() * sizeof(Element),
          .dtype = dtype,
          .shape = std::move(shape)};
}

TEST(ModelTask, ChannelsThatComeLastGoFirstAndAreStandardisedEach) {
  TrainConfig config;
  config.model.input_mean = {0.0, 0.5, 1.0};
  config.model.input_stddev = {1.0, 0.5, 2.0};
  const auto task = TaskOf(config, {.input_shape = {5, 6, 3}});
  std::vector<std::uint8_t> bytes(2 * 5 * 6 * 3);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  const auto input = ToInput(*task, ViewOf(bytes, Dtype::kU8, {2, 5, 6, 3}), 2, nullptr);
  ASSERT_TRUE(input.has_value()) << input.error().ToString();
  EXPECT_EQ(input->sizes(), (std::vector<std::int64_t>{2, 3, 5, 6}));
  EXPECT_TRUE(input->is_contiguous());
  // Sample 1, channel 2, row 4, column 3.
  const int element = ((1 * 5 + 4) * 6 + 3) * 3 + 2;
  EXPECT_NEAR(input->index({1, 2, 4, 3}).item<float>(), (element / 255.0 - 1.0) / 2.0, 1e-6);
  EXPECT_NEAR(input->index({1, 1, 4, 3}).item<float>(), ((element - 1) / 255.0 - 0.5) / 0.5, 1e-6);
}

TEST(ModelTask, TargetsFollowTheLoss) {
  TrainConfig config;
  config.model.architecture = "lenet";
  EXPECT_TRUE(TaskOf(config, {})->target_shape.empty());
  config.model.loss = "squared-error";
  config.model.classes = 3;
  EXPECT_EQ(TaskOf(config, {})->target_shape, std::vector<std::int64_t>{3});
  config = {};
  config.model.architecture = "unet3d-micro";
  const auto volumes = TaskOf(config, {.input_shape = {8, 8, 8}});
  EXPECT_EQ(volumes->target_shape, (std::vector<std::int64_t>{8, 8, 8}));
  const std::vector<std::uint8_t> classes(512, 2);
  const auto target = ToTarget(*volumes, ViewOf(classes, Dtype::kU8, {1, 8, 8, 8}), 1, nullptr);
  ASSERT_TRUE(target.has_value()) << target.error().ToString();
  EXPECT_EQ(target->sum().item<float>(), 1024);
}

// All parameters of `model` as the same number.
void WriteWeights(const std::filesystem::path& path, const Model& model, float value) {
  std::vector<TensorEntry> entries;
  std::vector<float> floats;
  for (const ModelPart& part : model.parts) {
    const std::shared_ptr<Part> made = part.make();
    for (const auto& parameter : made->named_parameters()) {
      const auto sizes = parameter.value().sizes();
      const std::uint64_t begin = floats.size() * sizeof(float);
      floats.resize(floats.size() + static_cast<std::size_t>(parameter.value().numel()), value);
      entries.push_back({.name = part.name + "." + parameter.key(),
                         .dtype = "F32",
                         .shape = {sizes.begin(), sizes.end()},
                         .begin = begin,
                         .end = floats.size() * sizeof(float)});
    }
  }
  const std::vector<std::byte> header = EncodeSafetensorsHeader({}, entries);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()),
             static_cast<std::streamsize>(header.size()));
  file.write(reinterpret_cast<const char*>(floats.data()),
             static_cast<std::streamsize>(floats.size() * sizeof(float)));
}

TEST(ModelTask, WeightsComeFromTheFileButThoseThatStayFresh) {
  const testing::TempFolder folder;
  TrainConfig config;
  config.model.architecture = "lenet-micro";
  config.model.weights = folder.path() / "weights.safetensors";
  config.model.fresh = "linear2.";
  WriteWeights(config.model.weights, MakeModel({.name = "lenet-micro"}).value(), 0.25F);
  const auto task = TaskOf(config, {});
  const torch::Tensor first = task->model.parts.front().make()->parameters()[0];
  EXPECT_TRUE(first.eq(0.25).all().item<bool>());
  const torch::Tensor last = task->model.parts.back().make()->parameters()[0];
  EXPECT_FALSE(last.eq(0.25).any().item<bool>());

  config.model.classes = 7;
  config.model.fresh = "";
  const auto refused = MakeModelTask(config, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().ToString(), HasSubstr("weights.safetensors"));
  EXPECT_THAT(refused.error().ToString(), HasSubstr("linear2.weight"));
}

}  // namespace
}  // namespace forebay::train
