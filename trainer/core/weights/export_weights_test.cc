// The command export: names and bytes of the file that it writes, and what stays as it was when it
// fails.
#include "trainer/core/weights/export_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trainer/core/weights/safetensors.h"
#include "trainer/testing/stored_checkpoint.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

CheckpointTensor TensorOf(const std::string& name, const std::vector<float>& values) {
  CheckpointTensor tensor;
  tensor.name = name;
  tensor.shape = {values.size()};
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// Weights, a running statistic, and the optimiser's states of the weights.
Checkpoint Trained() {
  Checkpoint checkpoint;
  checkpoint.model = "tiny";
  checkpoint.optimiser = "adamw";
  checkpoint.optimiser_states = {"exp_avg", "exp_avg_sq"};
  checkpoint.global_step = 12;
  checkpoint.tensors = {TensorOf("conv.weight", {1, 2, 3}), TensorOf("conv.bias", {4}),
                        TensorOf("norm.running_mean", {5, 6}),
                        TensorOf("conv.weight/exp_avg", {7, 7, 7}),
                        TensorOf("conv.weight/exp_avg_sq", {8, 8, 8}),
                        TensorOf("conv.bias/exp_avg", {9}), TensorOf("conv.bias/exp_avg_sq", {9}),
                        // Of no weight: some module may call a buffer so.
                        TensorOf("other/exp_avg", {1})};
  return checkpoint;
}

class ExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(testing::Store(Trained(), folder_.path() / "run1").has_value());
  }
  Result<std::string> Export(const std::string& checkpoint, bool replaces = false) {
    std::vector<std::string> words = {"forebay-train", "export",
                                      (folder_.path() / checkpoint).string(), "-o",
                                      output_.string()};
    if (replaces) words.emplace_back("--force");
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    return ExportCommand(static_cast<int>(argv.size()), argv.data());
  }

  testing::TempFolder folder_;
  fs::path output_ = folder_.path() / "weights.safetensors";
};

TEST_F(ExportTest, WeightsAndStatisticsHaveTheirNamesAndBytes) {
  const auto line = Export("run1/step-000000000012");
  ASSERT_TRUE(line.has_value()) << line.error().ToString();
  EXPECT_THAT(*line, HasSubstr("4 tensors, 28 bytes, of tiny at step 12"));
  const auto file = SafetensorsFile::Open(output_);
  ASSERT_TRUE(file.has_value()) << file.error().ToString();
  std::vector<std::string> names;
  for (const TensorEntry& entry : file->header().tensors) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("conv.bias", "conv.weight", "norm.running_mean",
                                 "other/exp_avg"));
  EXPECT_THAT(*file->ReadFloats(*file->header().Find("conv.weight")), ElementsAre(1, 2, 3));
  EXPECT_THAT(*file->ReadFloats(*file->header().Find("norm.running_mean")), ElementsAre(5, 6));
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  EXPECT_EQ(file->header().metadata.at("global_step"), "12");
  EXPECT_FALSE(fs::exists(output_.string() + ".partial"));
}

TEST_F(ExportTest, AFolderOfCheckpointsMeansTheNewest) {
  EXPECT_TRUE(Export("run1").has_value());
}

TEST_F(ExportTest, ADamagedCheckpointLeavesWhatWasThere) {
  std::ofstream(output_) << "earlier";
  const fs::path shard = folder_.path() / "run1/step-000000000012" / "shard-00000.safetensors";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x55');
  file.close();
  const auto refused = Export("run1/step-000000000012", true);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kDataLoss);
  const auto none = Export("run1", true);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message(), HasSubstr("passed over: "));
  EXPECT_THAT(none.error().message(), HasSubstr("shard-00000"));
  std::string text;
  std::getline(std::ifstream(output_), text);
  EXPECT_EQ(text, "earlier");
}

TEST_F(ExportTest, ReplacesAFileOnlyWhenAskedToAndNeverACheckpoints) {
  std::ofstream(output_) << "earlier";
  const auto there = Export("run1");
  ASSERT_FALSE(there.has_value());
  EXPECT_EQ(there.error().code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(fs::file_size(output_), 7U);
  EXPECT_TRUE(Export("run1", true).has_value());
  EXPECT_GT(fs::file_size(output_), 7U);
  output_ = folder_.path() / "run1/step-000000000012/shard-00000.safetensors";
  const auto own = Export("run1", true);
  ASSERT_FALSE(own.has_value());
  EXPECT_EQ(own.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(VerifyCheckpoint(output_.parent_path()).has_value());
}

TEST_F(ExportTest, WhatCannotBeWrittenIsNamedAndLeavesNothing) {
  output_ = folder_.path() / "absent" / "weights.safetensors";
  const auto refused = Export("run1/step-000000000012");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().ToString(), HasSubstr("absent/weights.safetensors"));
}

TEST(ExportCommandTest, RefusesWrongWordsWithTheUsage) {
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"t", "export"}, {"t", "export", "run1"},
        {"t", "export", "run1", "-o"}, {"t", "export", "a", "b", "-o", "c"},
        {"t", "export", "-o", "c"}}) {
    const auto refused = ExportCommand(static_cast<int>(words.size()), words.data());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr("forebay-train export CHECKPOINT -o"));
  }
  const std::vector<const char*> help = {"t", "export", "--help"};
  EXPECT_THAT(*ExportCommand(3, help.data()), HasSubstr("optimiser's state"));
}

}  // namespace
}  // namespace forebay::train
