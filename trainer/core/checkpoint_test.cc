#include "trainer/core/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "trainer/core/checkpoint_folder.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

CheckpointTensor Floats(const std::string& name, std::vector<float> values) {
  CheckpointTensor tensor;
  tensor.name = name;
  tensor.shape = {values.size()};
  tensor.bytes.resize(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

Checkpoint Sample(std::uint64_t global_step = 42) {
  Checkpoint checkpoint;
  checkpoint.model = "lenet \"quoted\"";
  checkpoint.optimiser = "sgd";
  checkpoint.optimiser_states = {"momentum", "second"};
  checkpoint.global_step = global_step;
  checkpoint.epoch = 3;
  checkpoint.step = 6;
  checkpoint.seed = 0xFFFF'FFFF'FFFF'FFFF;
  checkpoint.global_batch = 64;
  checkpoint.evaluation_pending = true;
  checkpoint.position_token = {std::byte{0}, std::byte{0xAB}, std::byte{0xFF}};
  // Not in the order of names: the file keeps the order they were given in.
  checkpoint.tensors = {Floats("w", {1.5F, -2.0F, 3.25F}), Floats("b", {}), Floats("a", {7.0F})};
  return checkpoint;
}

// Rewrites the JSON header and makes the checksum right again: what a hostile writer would do.
std::vector<std::byte> WithHeader(std::vector<std::byte> bytes,
                                  const std::function<void(Json&)>& change) {
  ByteReader reader(bytes);
  const auto length = static_cast<std::size_t>(reader.ReadLe<std::uint64_t>());
  const char* const begin = reinterpret_cast<const char*>(bytes.data()) + 8;
  Json header = Json::parse(begin, begin + length);
  change(header);
  const std::string text = header.dump();
  ByteWriter writer;
  writer.Le(static_cast<std::uint64_t>(text.size()));
  writer.Bytes(std::as_bytes(std::span(text.data(), text.size())));
  const std::span data = std::span(bytes).subspan(8 + length);
  writer.Bytes(data.first(data.size() - 8));
  writer.Le(Checksum(writer.bytes()));
  return writer.Release();
}

TEST(Checkpoint, ReadsBackWhatWasWritten) {
  const Checkpoint written = Sample();
  const auto read = DecodeCheckpoint(EncodeCheckpoint(written));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(read->model, written.model);
  EXPECT_EQ(read->optimiser, written.optimiser);
  EXPECT_EQ(read->optimiser_states, written.optimiser_states);
  EXPECT_EQ(read->global_step, 42U);
  EXPECT_EQ(read->epoch, 3U);
  EXPECT_EQ(read->step, 6U);
  EXPECT_EQ(read->seed, written.seed);
  EXPECT_EQ(read->global_batch, 64U);
  EXPECT_TRUE(read->evaluation_pending);
  EXPECT_EQ(read->position_token, written.position_token);
  ASSERT_EQ(read->tensors.size(), 3U);
  for (const CheckpointTensor& tensor : written.tensors) {
    ASSERT_NE(read->Find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(read->Find(tensor.name)->bytes, tensor.bytes);
    EXPECT_EQ(read->Find(tensor.name)->shape, tensor.shape);
  }
  EXPECT_EQ(read->Find("forebay.checksum"), nullptr);
}

TEST(Checkpoint, IsASafetensorsFile) {
  const std::vector<std::byte> bytes = EncodeCheckpoint(Sample());
  ByteReader reader(bytes);
  const auto length = static_cast<std::size_t>(reader.ReadLe<std::uint64_t>());
  const char* const begin = reinterpret_cast<const char*>(bytes.data()) + 8;
  const Json header = Json::parse(begin, begin + length);
  EXPECT_EQ((8 + length) % 8, 0U);
  EXPECT_EQ(header["w"]["dtype"], "F32");
  EXPECT_EQ(header["w"]["data_offsets"], Json({0, 12}));
  // Every byte of the data belongs to a tensor, the checksum included.
  EXPECT_EQ(header["forebay.checksum"]["data_offsets"][1].get<std::size_t>(),
            bytes.size() - 8 - length);
}

TEST(Checkpoint, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = EncodeCheckpoint(Sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeCheckpoint(std::span(bytes).first(size)).has_value()) << size;
  }
}

TEST(Checkpoint, EveryFlippedBitIsRefused) {
  std::vector<std::byte> bytes = EncodeCheckpoint(Sample());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1U << (bit % 8));
    bytes[bit / 8] ^= mask;
    const auto read = DecodeCheckpoint(bytes);
    ASSERT_FALSE(read.has_value()) << bit;
    EXPECT_EQ(read.error().code(), ErrorCode::kDataLoss);
    bytes[bit / 8] ^= mask;
  }
  EXPECT_TRUE(DecodeCheckpoint(bytes).has_value());
}

struct Hostile {
  const char* what;
  std::function<void(Json&)> change;
};

TEST(Checkpoint, MalformedHeadersWithARightChecksumAreRefused) {
  const std::vector<std::byte> bytes = EncodeCheckpoint(Sample());
  ASSERT_TRUE(DecodeCheckpoint(WithHeader(bytes, [](Json&) {})).has_value());
  const std::vector<Hostile> cases = {
      {"no metadata", [](Json& h) { h.erase("__metadata__"); }},
      {"metadata not text", [](Json& h) { h["__metadata__"]["epoch"] = 3; }},
      {"missing number", [](Json& h) { h["__metadata__"].erase("step"); }},
      {"negative number", [](Json& h) { h["__metadata__"]["step"] = "-1"; }},
      {"overflowing epoch", [](Json& h) { h["__metadata__"]["epoch"] = "4294967296"; }},
      {"token not hexadecimal", [](Json& h) { h["__metadata__"]["position_token"] = "zz"; }},
      {"odd token", [](Json& h) { h["__metadata__"]["position_token"] = "abc"; }},
      {"offset beyond", [](Json& h) { h["w"]["data_offsets"] = {0, 1ULL << 60}; }},
      {"offsets reversed", [](Json& h) { h["w"]["data_offsets"] = {12, 0}; }},
      {"negative offset", [](Json& h) { h["w"]["data_offsets"] = {-1, 11}; }},
      {"one offset", [](Json& h) { h["w"]["data_offsets"] = {0}; }},
      {"shape overflow", [](Json& h) { h["w"]["shape"] = {1ULL << 62, 4}; }},
      {"shape too small", [](Json& h) { h["w"]["shape"] = {2}; }},
      {"shape not a list", [](Json& h) { h["w"]["shape"] = 3; }},
      {"unknown dtype", [](Json& h) { h["w"]["dtype"] = "F8"; }},
      {"dtype a number", [](Json& h) { h["w"]["dtype"] = 32; }},
      {"tensor a number", [](Json& h) { h["w"] = 1; }},
      {"overlap", [](Json& h) { h["a"]["data_offsets"] = {8, 12}; }},
      {"hole", [](Json& h) { h.erase("w"); }},
      {"no checksum tensor", [](Json& h) { h.erase("forebay.checksum"); }},
  };
  for (const Hostile& hostile : cases) {
    const auto read = DecodeCheckpoint(WithHeader(bytes, hostile.change));
    ASSERT_FALSE(read.has_value()) << hostile.what;
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument) << hostile.what;
  }
}

TEST(Checkpoint, AnotherFormatVersionNamesBoth) {
  const auto read = DecodeCheckpoint(WithHeader(EncodeCheckpoint(Sample()), [](Json& header) {
    header["__metadata__"]["format"] = "forebay-checkpoint-2";
  }));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(read.error().message(), HasSubstr("forebay-checkpoint-2"));
  EXPECT_THAT(read.error().message(), HasSubstr("forebay-checkpoint-1"));
}

TEST(Checkpoint, HeaderLengthBeyondTheFileIsRefused) {
  for (const std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{9}}) {
    ByteWriter writer;
    writer.Le(length);
    writer.Bytes(std::vector<std::byte>(8));
    writer.Le(Checksum(writer.bytes()));
    const auto read = DecodeCheckpoint(writer.bytes());
    ASSERT_FALSE(read.has_value()) << length;
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(CheckpointFolder, KeepsTheNewestAndFindsIt) {
  const testing::TempFolder temp;
  auto folder = CheckpointFolder::Open(temp.path() / "checkpoints", 2);
  ASSERT_TRUE(folder.has_value()) << folder.error().ToString();
  for (const std::uint64_t step : {9U, 10U, 100U}) {
    ASSERT_TRUE(folder->Save(Sample(step)).has_value());
  }
  std::vector<std::string> skipped;
  const auto newest = folder->Newest(skipped);
  ASSERT_TRUE(newest.has_value());
  ASSERT_TRUE(newest->has_value());
  EXPECT_EQ((*newest)->checkpoint.global_step, 100U);
  EXPECT_TRUE(skipped.empty());
  const auto entries = std::filesystem::directory_iterator(temp.path() / "checkpoints");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 2);
}

TEST(CheckpointFolder, EmptyFolderHasNone) {
  const testing::TempFolder temp;
  const auto folder = CheckpointFolder::Open(temp.path(), 1);
  ASSERT_TRUE(folder.has_value());
  std::vector<std::string> skipped;
  const auto newest = folder->Newest(skipped);
  ASSERT_TRUE(newest.has_value());
  EXPECT_FALSE(newest->has_value());
}

TEST(CheckpointFolder, TornCheckpointIsPassedOver) {
  const testing::TempFolder temp;
  auto folder = CheckpointFolder::Open(temp.path(), 3);
  ASSERT_TRUE(folder.has_value());
  ASSERT_TRUE(folder->Save(Sample(1)).has_value());
  const auto torn = folder->Save(Sample(2));
  ASSERT_TRUE(torn.has_value());
  const auto whole_bytes = std::filesystem::file_size(*torn);
  std::filesystem::resize_file(*torn, whole_bytes / 2);
  std::vector<std::string> skipped;
  const auto newest = folder->Newest(skipped);
  ASSERT_TRUE(newest.has_value() && newest->has_value());
  EXPECT_EQ((*newest)->checkpoint.global_step, 1U);
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_THAT(skipped[0], HasSubstr(torn->filename().string()));
}

TEST(CheckpointFolder, CrashLeftoversAreRemovedAndOtherFilesAreNot) {
  const testing::TempFolder temp;
  const auto leftover = temp.path() / "step-000000000007.safetensors.tmp";
  const auto foreign = temp.path() / "notes.tmp";
  const auto unrelated = temp.path() / "step-x.safetensors";
  for (const auto& path : {leftover, foreign, unrelated}) std::ofstream(path) << "x";
  const auto folder = CheckpointFolder::Open(temp.path(), 1);
  ASSERT_TRUE(folder.has_value());
  EXPECT_FALSE(std::filesystem::exists(leftover));
  EXPECT_TRUE(std::filesystem::exists(foreign));
  std::vector<std::string> skipped;
  const auto newest = folder->Newest(skipped);
  ASSERT_TRUE(newest.has_value());
  EXPECT_FALSE(newest->has_value());
  EXPECT_TRUE(skipped.empty());
}

TEST(CheckpointFolder, FailedWriteLeavesTheOldFile) {
  const testing::TempFolder temp;
  const auto path = temp.path() / "state.safetensors";
  ASSERT_TRUE(WriteCheckpoint(path, Sample(1)).has_value());
  // The temporary's place is taken by a folder, so that it cannot be opened for writing.
  std::filesystem::create_directory(path.string() + ".tmp");
  const Status failed = WriteCheckpoint(path, Sample(2));
  ASSERT_FALSE(failed.has_value());
  const auto read = ReadCheckpoint(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->global_step, 1U);
}

TEST(CheckpointFolder, MissingAndIrregularFilesAreTypedErrors) {
  const testing::TempFolder temp;
  const auto missing = ReadCheckpoint(temp.path() / "none");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  const auto irregular = ReadCheckpoint(temp.path());
  ASSERT_FALSE(irregular.has_value());
  EXPECT_EQ(irregular.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace forebay::train
