// Manifests, shards and folders of checkpoints: what is written reads back, every damage is found,
// and a crash or another run never costs a checkpoint. Python reads a shard to show that other
// programs can.
#include "trainer/core/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "proto/contract/checksum.h"
#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"
#include "trainer/testing/stored_checkpoint.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train::checkpoint_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

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
  checkpoint.run = "00000000000000fe";
  checkpoint.resumed_from = CheckpointOrigin{.run = "", .step = 17};
  checkpoint.model = "lenet \"quoted\"";
  checkpoint.optimiser = "sgd";
  checkpoint.optimiser_states = {"momentum", "second"};
  checkpoint.global_step = global_step;
  checkpoint.epoch = 3;
  checkpoint.step = 6;
  checkpoint.seed = 0xFFFF'FFFF'FFFF'FFFF;
  checkpoint.global_batch = 64;
  checkpoint.evaluation_pending = true;
  checkpoint.identity = "threads=1";
  checkpoint.layout = "2 x 1";
  checkpoint.configuration = "[train]\nepochs = 3\n";
  checkpoint.best = BestMark{.metric = "accuracy", .value = 0.1 + 0.2, .epoch = 2};
  checkpoint.position_token = {std::byte{0}, std::byte{0xAB}, std::byte{0xFF}};
  checkpoint.tensors = {Floats("w", {1.5F, -2.0F, 3.25F}), Floats("b", {}), Floats("a", {7.0F})};
  return checkpoint;
}

Manifest SampleManifest() {
  Manifest manifest{.state = Sample(), .shards = {{.bytes = 100, .hash = 0xFEDC'BA98'7654'3210},
                                                  {.bytes = 1ULL << 40, .hash = 7}}};
  manifest.state.tensors.clear();
  return manifest;
}

// What a hostile writer would do: other contents, and the checksum is right again.
std::string Changed(const std::string& text, const std::function<void(Json&)>& change) {
  Json json = Json::parse(text);
  json.erase("xxh3");
  change(json);
  const std::string covered = json.dump(1).substr(2);
  const std::uint64_t hash = Checksum(std::as_bytes(std::span(covered.data(), covered.size())));
  char seal[32];
  std::snprintf(seal, sizeof(seal), "{\"xxh3\": \"%016llx\",\n",
                static_cast<unsigned long long>(hash));
  return seal + covered;
}

void Overwrite(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Manifest, ReadsBackWhatWasWritten) {
  const Manifest written = SampleManifest();
  const auto read = DecodeManifest(EncodeManifest(written));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(read->state, written.state);
  EXPECT_EQ(read->shards, written.shards);
  Manifest without = SampleManifest();
  without.state.best.reset();
  without.state.run.clear();
  without.state.resumed_from.reset();
  const auto none = DecodeManifest(EncodeManifest(without));
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->state, without.state);
}

TEST(Manifest, FromBeforeRunsHadNamesIsRead) {
  const auto read = DecodeManifest(Changed(EncodeManifest(SampleManifest()), [](Json& json) {
    json.erase("run");
    json.erase("resumed_from");
  }));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(read->state.run, "");
  EXPECT_FALSE(read->state.resumed_from.has_value());
}

TEST(Manifest, IsJsonForOtherPrograms) {
  const Json json = Json::parse(EncodeManifest(SampleManifest()));
  EXPECT_EQ(json["global_step"], 42);
  EXPECT_EQ(json["position_token"], "00abff");
  EXPECT_EQ(json["shards"][1]["file"], "shard-00001.safetensors");
}

TEST(Manifest, EveryTruncationIsRefused) {
  const std::string text = EncodeManifest(SampleManifest());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(DecodeManifest(text.substr(0, size)).has_value()) << size;
  }
}

TEST(Manifest, EveryFlippedBitIsRefused) {
  std::string text = EncodeManifest(SampleManifest());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    const auto mask = static_cast<char>(1U << (bit % 8));
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ mask);
    ASSERT_FALSE(DecodeManifest(text).has_value()) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ mask);
  }
  EXPECT_TRUE(DecodeManifest(text).has_value());
}

TEST(Manifest, MalformedOnesWithARightChecksumAreRefused) {
  struct Case {
    const char* what;
    std::function<void(Json&)> change;
  };
  const std::string text = EncodeManifest(SampleManifest());
  ASSERT_TRUE(DecodeManifest(Changed(text, [](Json&) {})).has_value());
  const std::vector<Case> cases = {
      {"run out of the folder", [](Json& m) { m["run"] = "../../../../../x"; }},
      {"run a number", [](Json& m) { m["run"] = 12; }},
      {"run of upper case", [](Json& m) { m["run"] = "00000000000000FE"; }},
      {"origin a number", [](Json& m) { m["resumed_from"] = 12; }},
      {"origin without a step", [](Json& m) { m["resumed_from"].erase("step"); }},
      {"no step", [](Json& m) { m.erase("step"); }},
      {"negative step", [](Json& m) { m["step"] = -1; }},
      {"step as text", [](Json& m) { m["step"] = "1"; }},
      {"fraction", [](Json& m) { m["global_step"] = 1.5; }},
      {"epoch too large", [](Json& m) { m["epoch"] = 1ULL << 32; }},
      {"pending a number", [](Json& m) { m["evaluation_pending"] = 1; }},
      {"model not text", [](Json& m) { m["model"] = nullptr; }},
      {"states not a list", [](Json& m) { m["optimiser_states"] = "momentum"; }},
      {"state not text", [](Json& m) { m["optimiser_states"] = {1}; }},
      {"token not hexadecimal", [](Json& m) { m["position_token"] = "zz"; }},
      {"token of upper case", [](Json& m) { m["position_token"] = "AB"; }},
      {"odd token", [](Json& m) { m["position_token"] = "abc"; }},
      {"best not an object", [](Json& m) { m["best"] = 1; }},
      {"best without value", [](Json& m) { m["best"].erase("value"); }},
      {"no shards", [](Json& m) { m["shards"] = Json::array(); }},
      {"shards not a list", [](Json& m) { m["shards"] = Json::object(); }},
      {"shard a number", [](Json& m) { m["shards"][0] = 1; }},
      {"shard elsewhere", [](Json& m) { m["shards"][0]["file"] = "../../etc/passwd"; }},
      {"shards reversed", [](Json& m) { std::swap(m["shards"][0], m["shards"][1]); }},
      {"short hash", [](Json& m) { m["shards"][0]["xxh3"] = "12"; }},
      {"hash with a sign", [](Json& m) { m["shards"][0]["xxh3"] = "-000000000000012"; }},
      {"bytes as text", [](Json& m) { m["shards"][0]["bytes"] = "12"; }},
      {"deep", [](Json& m) { m["more"] = Json::parse("[[[[[[]]]]]]"); }},
  };
  for (const Case& hostile : cases) {
    const auto read = DecodeManifest(Changed(text, hostile.change));
    ASSERT_FALSE(read.has_value()) << hostile.what;
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument) << hostile.what;
  }
}

TEST(Manifest, AnotherFormatVersionNamesBoth) {
  const auto read = DecodeManifest(Changed(EncodeManifest(SampleManifest()), [](Json& json) {
    json["format"] = "forebay-checkpoint-3";
  }));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(read.error().message(), HasSubstr("forebay-checkpoint-3"));
  EXPECT_THAT(read.error().message(), HasSubstr("forebay-checkpoint-2"));
}

TEST(CheckpointTest, ValuesThatAreNotFiniteAreNamed) {
  Checkpoint checkpoint = Sample();
  EXPECT_TRUE(CheckFinite(checkpoint).has_value());
  checkpoint.tensors.push_back({.name = "bytes", .dtype = "U8", .shape = {4}, .bytes = {}});
  checkpoint.tensors.back().bytes.assign(4, std::byte{0xFF});  // as a float: no number
  EXPECT_TRUE(CheckFinite(checkpoint).has_value());
  checkpoint.tensors[2] = Floats("conv.weight/momentum", {1, 2, -INFINITY, NAN});
  const Status found = CheckFinite(checkpoint);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(found.error().message(), "value 2 of tensor conv.weight/momentum is -inf");
}

TEST(CheckpointShard, IsReadByAnotherProgram) {
  const testing::TempFolder temp;
  const fs::path path = temp.path() / "shard";
  const std::vector<CheckpointTensor> tensors = Sample().tensors;
  const auto facts = WriteShard(path, tensors);
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_EQ(facts->bytes, fs::file_size(path));
  const std::string command = "python3 -c '"
      "import json, struct, sys\n"
      "raw = open(sys.argv[1], \"rb\").read()\n"
      "length = struct.unpack(\"<Q\", raw[:8])[0]\n"
      "header = json.loads(raw[8:8 + length])\n"
      "begin, end = header[\"w\"][\"data_offsets\"]\n"
      "data = raw[8 + length:]\n"
      "print(header[\"w\"][\"dtype\"], header[\"w\"][\"shape\"],"
      " struct.unpack(\"<3f\", data[begin:end]), header[\"__metadata__\"][\"format\"])' " +
      path.string();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> python(::popen(command.c_str(), "r"),
                                                               &::pclose);
  ASSERT_NE(python, nullptr);
  char line[200] = {};
  ASSERT_NE(std::fgets(line, sizeof(line), python.get()), nullptr) << "no python3?";
  EXPECT_STREQ(line, "F32 [3] (1.5, -2.0, 3.25) pt\n");
}

TEST(CheckpointShard, DamageAndTruncationAreFound) {
  const testing::TempFolder temp;
  const fs::path path = temp.path() / "shard";
  const std::vector<CheckpointTensor> tensors = Sample().tensors;
  const auto facts = WriteShard(path, tensors);
  ASSERT_TRUE(facts.has_value());
  ASSERT_TRUE(VerifyShard(path, *facts).has_value());
  const std::string whole = Contents(path);
  for (const std::size_t at : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    Overwrite(path, damaged);
    const Status found = VerifyShard(path, *facts);
    ASSERT_FALSE(found.has_value()) << at;
    EXPECT_EQ(found.error().code(), ErrorCode::kDataLoss);
  }
  Overwrite(path, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(VerifyShard(path, *facts).error().code(), ErrorCode::kDataLoss);
}

TEST(CheckpointShard, FullDiskIsAnErrorThatNamesTheFile) {
  const std::vector<CheckpointTensor> tensors = Sample().tensors;
  const auto facts = WriteShard("/dev/full", tensors);
  ASSERT_FALSE(facts.has_value());
  EXPECT_THAT(facts.error().message(), HasSubstr("/dev/full"));
}

TEST(CheckpointReader, ReadsSingleTensorsBack) {
  const testing::TempFolder temp;
  const Checkpoint written = Sample();
  const auto reader = testing::Store(written, temp.path());
  ASSERT_TRUE(reader.has_value()) << reader.error().ToString();
  EXPECT_EQ(reader->state().position_token, written.position_token);
  EXPECT_THAT(reader->Names(), ElementsAre("a", "b", "w"));
  EXPECT_EQ(reader->Find("c"), nullptr);
  ASSERT_NE(reader->Find("w"), nullptr);
  EXPECT_EQ(reader->Find("w")->shape, (std::vector<std::uint64_t>{3}));
  std::vector<std::byte> bytes(12);
  ASSERT_TRUE(reader->Read("w", bytes).has_value());
  EXPECT_EQ(bytes, written.tensors[0].bytes);
}

// A stored checkpoint and what becomes of it when `change` is done to its folder.
Status Broken(const std::function<void(const fs::path&)>& change) {
  const testing::TempFolder temp;
  EXPECT_TRUE(testing::Store(Sample(), temp.path()).has_value());
  const fs::path folder = temp.path() / "step-000000000042";
  change(folder);
  const auto opened = CheckpointReader::Open(folder);
  if (!opened.has_value()) return opened.error();
  return VerifyCheckpoint(folder);
}

TEST(CheckpointReader, ForeignTornAndMissingFilesAreClearErrors) {
  const auto shard = [](const fs::path& folder) { return folder / ShardName(0); };
  const Status missing = Broken([&](const fs::path& folder) { fs::remove(shard(folder)); });
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr(ShardName(0)));
  const Status foreign =
      Broken([&](const fs::path& folder) { Overwrite(shard(folder), "not tensors at all"); });
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code(), ErrorCode::kInvalidArgument);
  const Status longer = Broken([&](const fs::path& folder) {
    const std::vector<CheckpointTensor> other = {Floats("w", {1, 2, 3, 4, 5})};
    EXPECT_TRUE(WriteShard(shard(folder), other).has_value());
  });
  ASSERT_FALSE(longer.has_value());
  EXPECT_THAT(longer.error().message(), HasSubstr("the manifest says"));
  const Status same_size = Broken([&](const fs::path& folder) {
    std::vector<CheckpointTensor> other = Sample().tensors;
    other[2].bytes[0] = std::byte{1};
    EXPECT_TRUE(WriteShard(shard(folder), other).has_value());
  });
  ASSERT_FALSE(same_size.has_value());
  EXPECT_EQ(same_size.error().code(), ErrorCode::kDataLoss);
  // Nobody writes to the pipe: an open that waits for a writer would not return.
  const Status pipe = Broken([&](const fs::path& folder) {
    fs::remove(shard(folder));
    ASSERT_EQ(mkfifo(shard(folder).c_str(), 0600), 0);
  });
  ASSERT_FALSE(pipe.has_value());
  EXPECT_THAT(pipe.error().message(), HasSubstr("not a regular file"));
  const Status no_manifest =
      Broken([](const fs::path& folder) { fs::remove(folder / kManifestName); });
  ASSERT_FALSE(no_manifest.has_value());
  EXPECT_EQ(no_manifest.error().code(), ErrorCode::kNotFound);
  const Status huge = Broken([](const fs::path& folder) {
    fs::resize_file(folder / kManifestName, kManifestBytesMax + 1);
  });
  ASSERT_FALSE(huge.has_value());
  EXPECT_EQ(huge.error().code(), ErrorCode::kResourceExhausted);
}

TEST(CheckpointReader, ATensorInTwoShardsIsRefused) {
  const testing::TempFolder temp;
  const std::vector<CheckpointTensor> tensors = Sample().tensors;
  Manifest manifest{.state = Sample(), .shards = {}};
  for (const std::size_t at : {0U, 1U}) {
    const auto facts = WriteShard(temp.path() / ShardName(at), tensors);
    ASSERT_TRUE(facts.has_value());
    manifest.shards.push_back(*facts);
  }
  ASSERT_TRUE(WriteSynced(temp.path() / kManifestName, EncodeManifest(manifest)).has_value());
  ASSERT_TRUE(VerifyCheckpoint(temp.path()).has_value());
  const auto reader = CheckpointReader::Open(temp.path());
  ASSERT_FALSE(reader.has_value());
  EXPECT_THAT(reader.error().message(), HasSubstr("in another shard"));
}

class CheckpointFolderTest : public ::testing::Test {
 protected:
  fs::path PathOf(std::uint64_t step) const {
    fs::path path = UnpublishedFolder(temp_.path(), step);
    return path.replace_extension();
  }
  void Save(std::uint64_t step) {
    const auto stored = testing::Store(Sample(step), temp_.path());
    ASSERT_TRUE(stored.has_value()) << stored.error().ToString();
  }
  std::ptrdiff_t Entries() const {
    const auto entries = fs::directory_iterator(temp_.path());
    return std::distance(begin(entries), end(entries));
  }

  testing::TempFolder temp_;
  std::vector<std::string> skipped_;
};

TEST_F(CheckpointFolderTest, NewestIntactOneIsFound) {
  for (const std::uint64_t step : {9U, 10U, 100U}) Save(step);
  EXPECT_EQ(NewestCheckpoint(temp_.path(), skipped_).value(), PathOf(100));
  EXPECT_TRUE(skipped_.empty());
  fs::resize_file(PathOf(100) / ShardName(0), 20);
  fs::remove(PathOf(10) / kManifestName);
  EXPECT_EQ(NewestCheckpoint(temp_.path(), skipped_).value(), PathOf(9));
  ASSERT_EQ(skipped_.size(), 2U);
  EXPECT_THAT(skipped_[0], HasSubstr("step-000000000100"));
  EXPECT_THAT(skipped_[1], HasSubstr("step-000000000010"));
}

TEST_F(CheckpointFolderTest, EmptyFolderHasNone) {
  EXPECT_FALSE(NewestCheckpoint(temp_.path(), skipped_).value().has_value());
}

TEST_F(CheckpointFolderTest, WhatACrashLeftIsNeverSelectedAndGoes) {
  Save(3);
  const fs::path torn = UnpublishedFolder(temp_.path(), 7);
  fs::copy(PathOf(3), torn, fs::copy_options::recursive);
  fs::copy(PathOf(3), PathOf(3).string() + ".old.tmp", fs::copy_options::recursive);
  for (const char* name : {"notes.tmp", "step-x"}) fs::create_directory(temp_.path() / name);
  EXPECT_EQ(NewestCheckpoint(temp_.path(), skipped_).value(), PathOf(3));
  ASSERT_TRUE(CheckpointFolder::Open(temp_.path(), 1).has_value());
  EXPECT_FALSE(fs::exists(torn));
  EXPECT_EQ(Entries(), 3);  // step 3 and what is not ours
}

TEST_F(CheckpointFolderTest, OneOfTheSameStepIsReplaced) {
  Save(5);
  Checkpoint other = Sample(5);
  other.seed = 99;
  ASSERT_TRUE(testing::Store(other, temp_.path()).has_value());
  EXPECT_EQ(ReadManifest(PathOf(5))->state.seed, 99U);
  EXPECT_EQ(Entries(), 1);
}

TEST_F(CheckpointFolderTest, OneThatAnotherRunWroteMeanwhileIsNotReplaced) {
  Save(3);
  auto open = CheckpointFolder::Open(temp_.path(), 3);
  ASSERT_TRUE(open.has_value());
  ASSERT_TRUE(open->Adopt().has_value());
  Save(5);  // by another run
  const auto manifest = ReadManifest(PathOf(5));
  ASSERT_TRUE(manifest.has_value());
  fs::copy(PathOf(5), UnpublishedFolder(temp_.path(), 5), fs::copy_options::recursive);
  const auto refused = open->Publish(*manifest);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("another run has written it"));
  EXPECT_TRUE(VerifyCheckpoint(PathOf(5)).has_value());
}

TEST_F(CheckpointFolderTest, AFolderThatCannotBeWrittenToIsFoundAtOnce) {
  const std::string folder = "/proc/self/fdinfo";  // nobody makes files here, root included
  const auto refused = CheckpointFolder::Open(folder, 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("cannot be written to"));
}

TEST_F(CheckpointFolderTest, APathMeansWhatItSays) {
  Save(1);
  Save(2);
  for (const fs::path& path : {temp_.path(), PathOf(2), PathOf(2) / kManifestName}) {
    EXPECT_EQ(FindCheckpoint(path, skipped_).value(), PathOf(2)) << path;
  }
  EXPECT_EQ(FindCheckpoint(PathOf(1), skipped_).value(), PathOf(1));
  EXPECT_EQ(FindCheckpoint(temp_.path() / "none", skipped_).error().code(), ErrorCode::kNotFound);
  const auto file = FindCheckpoint(PathOf(1) / ShardName(0), skipped_);
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(file.error().message(), HasSubstr("name that folder"));
  fs::remove(PathOf(1) / ShardName(0));
  EXPECT_FALSE(FindCheckpoint(PathOf(1), skipped_).has_value());
}

}  // namespace forebay::train::checkpoint_test
